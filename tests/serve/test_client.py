"""`taps.Client` against a service on a real port."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taps
from taps.serve.client import ClientError
from taps.serve.service import Service
from tests.serve.conftest import ASKING, CLASSES, png
from tests.serve.patient import LONG


def test_a_stream_through_the_client(url: str, tmp_path) -> None:
    with taps.Client(url) as client:
        client.create_stream("pets", CLASSES, "taps", settings=ASKING, seed=1)
        (tmp_path / "a.png").write_bytes(png(0))
        said = client.predict("pets", tmp_path / "a.png")
        assert said["label"] in CLASSES
        for number in range(1, 10):
            client.predict("pets", png(number))
        questions = client.queries("pets")
        id = questions[0]["id"]
        assert client.image("pets", id) == png(id)
        assert client.label("pets", id, "dog")["changed"]
        assert client.undo("pets", id)["prediction"]["state"] == "open"
        assert client.skip("pets", id)["prediction"]["state"] == "skipped"
        assert client.add_classes("pets", ["bird"])["classes"][-1] == "bird"
        assert client.stats("pets")["seen"] == 10
        assert client.export("pets").startswith(b"id,at,name")
        kinds = [event["kind"] for event in client.events("pets", once=True)]
        assert kinds == ["predicted"] * 10 + ["answered", "undone", "skipped", "classes_added"]
        with pytest.raises(ClientError, match="No stream is named 'none'") as refused:
            client.stats("none")
        assert refused.value.status == 404
        client.delete_stream("pets")
        assert client.streams() == []


def test_a_caller_of_an_ask_first_stream_waits_for_the_annotator(url: str, service: Service) -> None:
    settings = {**ASKING, "policy": "fixed", "tau0": 0.0, "order": "ask_first"}
    with taps.Client(url, timeout=LONG) as client, taps.Client(url) as annotator:
        client.create_stream("pets", CLASSES, "taps", settings=settings, hold=LONG)
        events = annotator.events("pets", after=0)
        said: list[dict] = []
        caller = threading.Thread(target=lambda: said.append(client.predict("pets", png(1))))
        caller.start()
        asked = next(events)["prediction"]
        annotator.label("pets", asked["id"], "ship")
        caller.join()
        assert (said[0]["label"], said[0]["by"], said[0]["query_id"]) == ("ship", "annotator", None)
        assert next(events)["kind"] == "answered"


def test_nobody_answers_an_ask_first_stream(url: str) -> None:
    settings = {**ASKING, "policy": "fixed", "tau0": 0.0, "order": "ask_first"}
    with taps.Client(url) as client:
        client.create_stream("pets", CLASSES, "taps", settings=settings, hold=0.05)
        said = client.predict("pets", png(1))
        assert said["by"] == "model"
        assert said["query_id"] == 0
        assert client.label("pets", 0, "dog")["changed"]


def test_the_client_takes_answers_of_every_kind(url: str) -> None:
    settings = {"policy": "fixed", "tau0": -1.0}
    with taps.Client(url) as client:
        client.create_stream("pets", CLASSES, "zero_shot+", settings=settings)
        for number in range(3):
            client.predict("pets", png(number))
        given = (taps.Answer(no=("cat",)), taps.Answer(none=True), taps.Answer(unknown=True))
        rows = [client.label("pets", id, answer)["prediction"] for id, answer in enumerate(given)]
        assert [row["said"] for row in rows] == ["not cat", "none of the classes", ""]
        assert rows[2]["state"] == "skipped"


def test_a_name_leads_nowhere_else(url: str) -> None:
    with taps.Client(url) as client:
        client.create_stream("q", CLASSES, "zero_shot")
        for name in ("x/../q", "q?x=1", "q#x", "x/%2e%2e/q"):
            with pytest.raises(ClientError):
                client.delete_stream(name)
            with pytest.raises(ClientError):
                client.stats(name)
        for name in ("", ".", "..", None, True):
            with pytest.raises(ClientError, match="no name"):
                client.delete_stream(name)  # type: ignore[arg-type]
        with pytest.raises(ClientError):
            client.image("q", "0/../../../q")  # type: ignore[arg-type]
        assert [each["name"] for each in client.streams()] == ["q"]


def test_all_open_questions_come(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with taps.Client(url) as client:
        client.create_stream("pets", CLASSES, "zero_shot+", settings={"policy": "fixed", "tau0": -1.0})
        for number in range(102):
            client.predict("pets", png(number))
        assert [each["id"] for each in client.queries("pets")] == list(range(102))
        monkeypatch.setattr("taps.serve.client.PAGE", 40)
        assert [each["id"] for each in client.queries("pets")] == list(range(102))


def test_of_a_path_the_name_alone_is_sent(url: str, service: Service, tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 200) / ("e" * 200) / ("f" * 200)
    folder.mkdir(parents=True)
    names = ["a.png", "g" * 240 + ".png", "a\x1b[2J\u202eb.png"]
    with taps.Client(url) as client:
        client.create_stream("pets", CLASSES, "zero_shot")
        for name in names:
            (folder / name).write_bytes(png(1))
            client.predict("pets", folder / name)
    rows = service.worker("pets").rows()
    assert [row.name for row in rows] == [*names[:2], "a[2Jb.png"]


def test_bad_input_is_told_at_once(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("It was tried again."))
    os.mkfifo(tmp_path / "pipe.png")
    with taps.Client(url) as client:
        client.create_stream("pets", CLASSES, "zero_shot")
        for image in (bytearray(png(1)), memoryview(png(2))):
            assert client.predict("pets", image)["label"] in CLASSES
        bad: list[Any] = [np.zeros(3), io.BytesIO(), None, 5, tmp_path / "none.png", tmp_path, "a\0b"]
        for image in (*bad, tmp_path / "pipe.png"):
            with pytest.raises(ClientError):
                client.predict("pets", image)
        for act in (
            lambda: client.predict("pets", png(1), key="é"),
            lambda: client.label("pets", 0, float("nan")),  # type: ignore[arg-type]
            lambda: client.label("pets", 0, {1}),  # type: ignore[arg-type]
            lambda: client.create_stream("a", CLASSES, settings={"rate": float("inf")}),
            lambda: client.create_stream("a", "cat"),
            lambda: client.add_classes("pets", "bird"),
        ):
            with pytest.raises(ClientError):
                act()
    for act in (client.streams, lambda: next(client.events("pets"))):
        with pytest.raises(ClientError, match="closed"):
            act()
    for token in ("é", "", "a\nb", 5):
        with pytest.raises(ClientError, match="token"):
            taps.Client(url, token)  # type: ignore[arg-type]
    for address in ("127.0.0.1:8000", "ftp://a", "", "http://", "http://a:b", None):
        with pytest.raises(ClientError, match="address"):
            taps.Client(address)  # type: ignore[arg-type]
