"""Files of a running store that are deleted or moved are missed at once, and nothing is promised any more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from taps.serve import learner_log
from taps.serve.doctor import examine, recover
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import beginning, client_of, png
from tests.serve.deleting import OF_SQLITE, SINGLE, VITAL, delete
from tests.serve.streams import Served


@pytest.fixture
def filled(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service with two snapshots, that tries again at once."""
    for name, value in (("EVERY", 5), ("WORTH", 0), ("RETRY", 0.0)):
        monkeypatch.setattr(learner_log, name, value)
    service.create(beginning(), "test")
    for number in range(12):
        Served(service).predict(number)
    monkeypatch.setattr(learner_log, "EVERY", 1000)
    return service


@pytest.fixture
def http(filled: Service) -> Iterator[TestClient]:
    yield from client_of(filled)


def ready(service: Service, http: TestClient) -> Any:
    service._probed = (-10.0, [])
    return http.get("/readyz")


def predict(http: TestClient, number: int = 50) -> bool:
    return bool(http.post("/v1/streams/pets/predict", content=png(number)).json()["recorded"])


@pytest.mark.parametrize("what", [*VITAL, *OF_SQLITE])
def test_nothing_is_promised_without(filled: Service, http: TestClient, what: str) -> None:
    id = min(filled.worker("pets").session.learner_log.open)
    path = {**VITAL, **OF_SQLITE}[what](filled.store.files)
    assert ready(filled, http).status_code == 200
    aside = path.parent.with_name("aside")
    os.replace(path, aside)
    assert not predict(http)
    refused = http.post(f"/v1/streams/pets/queries/{id}/label", json={"label": "cat"})
    assert refused.status_code == 503
    for said in (refused.text, ready(filled, http).text):
        assert str(path) in said
        assert "deleted" in said
    assert ready(filled, http).status_code == 503
    assert not path.exists()  # nothing is made anew in its place
    os.replace(aside, path)  # it was only moved, and is back
    assert predict(http)
    assert ready(filled, http).status_code == 200
    delete(path)
    assert not predict(http, 51)
    assert ready(filled, http).status_code == 503


@pytest.mark.parametrize("what", ["log of writes", "index of that", "lock"])
def test_what_was_recorded_outlives(
    filled: Service, http: TestClient, open_service: Any, tmp_path: Path, what: str
) -> None:
    """Stopped cleanly, SQLite writes what it has in memory and in the deleted log to the database."""
    delete({**VITAL, **OF_SQLITE}[what](filled.store.files))
    assert not predict(http)
    before = Served(filled).digest()
    filled.stop()
    again = open_service(str(tmp_path / "store"), tmp_path / "store")
    assert Served(again).digest() == before
    assert [finding.sentence for finding in examine(again.store) if finding.bad] == []


def test_ends_of_logs_are_written_again_at_the_stop(
    filled: Service, open_service: Any, tmp_path: Path
) -> None:
    for what in ("end of a log", "end of the audit"):
        delete(SINGLE[what](filled.store.files))
    filled.stop()
    open_service(str(tmp_path / "store"), tmp_path / "store")


@pytest.mark.parametrize("what", SINGLE)
def test_one_that_is_lost_is_named(filled: Service, http: TestClient, what: str) -> None:
    assert ready(filled, http).status_code == 200
    path = SINGLE[what](filled.store.files)
    delete(path)
    said = ready(filled, http)
    assert said.status_code == 503
    assert str(path) in said.text
    assert predict(http)


def test_a_lost_snapshot_is_replaced(
    filled: Service, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete(SINGLE["snapshots of a stream"](filled.store.files))
    assert ready(filled, http).status_code == 503
    monkeypatch.setattr(learner_log, "SETTLE", 0.0)
    filled.send("pets", lambda session: session.tick()).result()
    assert filled.store.snapshots(1).check(12) is None
    assert ready(filled, http).status_code == 200


def test_a_lost_image_is_given_up_by_recover(filled: Service, http: TestClient) -> None:
    delete(SINGLE["one image"](filled.store.files))
    filled.stop()
    with Store.existing(str(filled.store.files)) as store:
        assert len([finding for finding in examine(store) if finding.bad]) == 1
        assert "lost" in " ".join(recover(store))
        assert [finding.sentence for finding in examine(store) if finding.bad] == []


def test_images_come_and_go_without_an_alarm(
    filled: Service, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taps.serve.store.RECENT", 3)
    monkeypatch.setattr(learner_log, "EVERY", 5)
    for number in range(60, 75):
        Served(filled).predict(number)
        assert ready(filled, http).status_code == 200
    assert any(not row.kept for row in filled.store.predictions(1))
