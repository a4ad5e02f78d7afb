"""What annotators may say besides a class, over HTTP: the learner is what it would be had it been told."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from taps.learner import Learner
from taps.model.clip import Clip
from taps.serve.client import Client
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import CLASSES, beginning, client_of, png
from tests.serve.streams import Served, digest

S = "/v1/streams/pets"
EVERY = {"policy": "fixed", "tau0": 0.0, "recent": 8}
HEADED = {"method": "zero_shot+", "settings": EVERY}


def test_texts_a_database_does_not_hold(place: tuple[str, Path], open_service: Any) -> None:
    """Refused, or left out of a file's name; the stream goes on."""
    service = open_service(*place)
    service.create(beginning(), "test")
    http = next(client_of(service))
    assert http.post(f"{S}/predict?name=a%00b", content=png(0)).status_code == 422
    assert http.post(f"{S}/classes", json={"names": ["a\0b"]}).status_code == 422
    assert http.post("/v1/tokens", json={"name": "a\0b", "roles": ["label"]}).status_code == 422
    said = http.post(f"{S}/predict", files={"image": ("a\0b.png", png(0))}).json()
    assert said["recorded"]
    assert service.troubles() == []


def send(http: TestClient, number: int) -> Any:
    return http.post(f"{S}/predict", content=png(number)).json()


def test_the_learner_hears_all_that_was_said_and_by_whom(service: Service, tiny: Clip) -> None:
    service.create(beginning(**HEADED), "test")
    http = next(client_of(service))
    tokens = http.app.state.taps.tokens
    _, admin = tokens.create("admin", ("admin",))
    people = {name: tokens.create(name, ("label",))[1] for name in ("ann", "bob")}
    bare = Learner(tiny, CLASSES, "zero_shot+", seed=1, **EVERY)
    http.headers["Authorization"] = f"Bearer {admin}"
    for number in range(6):
        assert send(http, number)["query_id"] == number
        bare.predict_one(png(number))

    def say(who: str, id: int, **said: Any) -> Any:
        mine = {"Authorization": f"Bearer {people[who]}"}
        answer = http.post(f"{S}/queries/{id}/label", json=said, headers=mine)
        assert answer.status_code == 200, answer.text
        bare.learn_one(id, **said, annotator=who)
        return answer.json()

    assert say("ann", 0, label="dog")["prediction"]["answer"] == "dog"
    assert say("bob", 1, none=True)["prediction"]["none"]
    assert say("ann", 2, no=["cat"])["prediction"]["no"] == ["cat"]
    assert not say("ann", 2, no=["cat"])["changed"]
    assert say("bob", 2, no=["ship"])["prediction"]["answer"] == "dog"  # the only one left
    assert say("bob", 3, no=["cat"])["changed"]
    assert say("ann", 3, label="cat")["prediction"]["no"] == []
    assert http.post(f"{S}/queries/4/skip").json()["prediction"]["state"] == "skipped"
    bare.skip(4)
    assert http.post(f"{S}/queries/1/undo").json()["prediction"]["none"] is False
    bare.undo(1)
    learner = http.get(f"{S}/stats").json()["learner"]
    assert learner["given_back"] == 1
    assert set(learner["head_annotators"]) == {"ann", "bob"}
    assert Served(service).digest() == digest(bare)

    rows = list(csv.DictReader(io.StringIO(http.get(f"{S}/export?what=labels").text)))
    assert [(row["id"], row["answer"], row["no"]) for row in rows] == [
        ("0", "dog", ""), ("2", "dog", ""), ("3", "cat", ""),
    ]  # fmt: skip


def test_a_replay_hears_the_same(
    service: Service, tiny: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from taps.serve.learner_log import LearnerLog

    service.create(beginning(**HEADED), "test")
    http = next(client_of(service))
    for number in range(4):
        send(http, number)
    for path, said in (
        ("0/label", {"none": True}), ("1/label", {"no": ["cat"]}), ("2/skip", None), ("3/skip", None),
        ("3/undo", None),
    ):  # fmt: skip
        assert http.post(f"{S}/queries/{path}", json=said).status_code == 200
    before = Served(service).digest()
    monkeypatch.setattr(LearnerLog, "unload", lambda self: None)
    service.stop()
    with Service(Store(str(tmp_path / "store")), tiny) as again:
        assert Served(again).digest() == before
        learner_log = again.worker("pets").session.learner_log
        assert (learner_log.replayed, learner_log.notes) == (9, [])
        rows = again.store.predictions(again.stream("pets").id)
        assert [row.state for row in rows] == ["answered", "answered", "skipped", "open"]
        assert (rows[0].none, rows[1].no) == (True, ["cat"])


def test_a_replay_that_comes_out_otherwise_says_so(service: Service, tiny: Clip, tmp_path: Path) -> None:
    from sqlalchemy import update

    from taps.serve import tables as t

    service.create(beginning(), "test")
    for number in range(3):
        Served(service).predict(number)
    service.stop()
    store = Store(str(tmp_path / "store"))
    shutil.rmtree(store.snapshots(1).folder)
    with store.database.write() as connection:
        connection.execute(update(t.predictions).where(t.predictions.c.id == 1).values(entropy=0.5))
    store.seal()
    with Service(store, tiny) as again:
        again.send("pets", lambda session: session.summary()).result()
        (note,) = again.worker("pets").session.learner_log.notes
        assert note.startswith("1 of 3 replayed events predict otherwise")


def test_what_cannot_be_said(http: TestClient, service: Service) -> None:
    service.create(beginning(settings={"views": 2, "policy": "fixed", "tau0": 0.0}), "test")
    send(http, 0)
    for both in ({"label": "cat", "none": True}, {"no": ["cat"], "none": True}, {}):
        assert http.post(f"{S}/queries/0/label", json=both).status_code == 422
    refused = http.post(f"{S}/queries/0/label", json={"none": True})
    assert refused.status_code == 409
    assert "learns from labels alone" in refused.json()["detail"]
    assert http.post(f"{S}/queries/0/label", json={"no": ["wolf"]}).status_code == 409
    assert http.get(f"{S}/queries/0").json()["state"] == "open"


def test_the_client_says_it_too(url: str, service: Service) -> None:
    service.create(beginning(**HEADED), "test")
    with Client(url) as client:
        for number in range(2):
            client.predict("pets", png(number))
        assert client.label("pets", 0, none=True)["prediction"]["none"]
        assert client.label("pets", 1, no=["cat"])["prediction"]["no"] == ["cat"]
