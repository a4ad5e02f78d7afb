"""`taps.Client` against a service on a real port."""

from __future__ import annotations

import threading

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
