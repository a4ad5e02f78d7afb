"""What was done is not done twice, and is not called a conflict, where its answer was lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

import taps
from taps.serve.client import waits
from taps.serve.service import Service
from tests.serve.conftest import CLASSES, client_of, png

ALL = {"views": 2, "policy": "fixed", "tau0": 0.0, "buffer": 6}


@pytest.fixture
def client(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[taps.Client]:
    """A client that loses the first answer to everything that changes something."""
    with taps.Client(url, timeout=300) as made:
        real, seen = made._http.request, set()

        def request(method: str, path: str, **more: Any) -> Any:
            response = real(method, path, **more)
            if method != "GET" and (method, path) not in seen:
                seen.add((method, path))
                raise httpx.ReadError("the connection was lost")
            return response

        monkeypatch.setattr(made._http, "request", request)
        yield made


def test_a_lost_answer_is_asked_for_again(client: taps.Client) -> None:
    assert client.create_stream("pets", CLASSES, "taps", settings=ALL)["name"] == "pets"
    id = client.predict("pets", png(1))["query_id"]
    assert client.label("pets", id, "dog")["prediction"]["answer"] == "dog"
    assert client.undo("pets", id)["prediction"]["state"] == "open"
    assert client.skip("pets", id)["prediction"]["state"] == "skipped"
    assert client.add_classes("pets", ["bird"])["classes"] == [*CLASSES, "bird"]
    kinds = [event["kind"] for event in client.events("pets", once=True)]
    assert kinds == ["predicted", "answered", "undone", "skipped", "classes_added"]
    client.delete_stream("pets")
    assert client.streams() == []


def test_a_key_is_for_one_thing(service: Service) -> None:
    body = {"name": "pets", "classes": CLASSES, "method": "taps", "settings": ALL}
    key = {"Idempotency-Key": "k"}
    for http in client_of(service):
        assert http.post("/v1/streams", json=body, headers=key).status_code == 201
        assert http.post("/v1/streams", json=body, headers=key).json()["name"] == "pets"
        assert http.post("/v1/streams", json=body).status_code == 409
        other = {**body, "classes": ["a", "b"]}
        assert http.post("/v1/streams", json=other, headers=key).status_code == 409
        asked(http)
        undo = "/v1/streams/pets/queries/0/undo"
        assert http.post(undo, headers=key).status_code == 200
        assert http.post(undo, headers=key).json()["changed"] is False
        assert http.post(undo, headers={"Idempotency-Key": "l"}).status_code == 409
        assert http.post("/v1/streams/pets/queries/0/skip", headers=key).status_code == 409
        names = {"names": ["bird"]}
        assert http.post("/v1/streams/pets/classes", json=names, headers=key).status_code == 409
        assert http.delete("/v1/streams/pets", headers=key).status_code == 409
        assert http.delete("/v1/streams/pets", headers={"Idempotency-Key": "d"}).status_code == 204
        assert http.delete("/v1/streams/pets", headers={"Idempotency-Key": "d"}).status_code == 204
        assert http.delete("/v1/streams/pets").status_code == 404
        assert http.post("/v1/streams", json=body).status_code == 201
        assert http.delete("/v1/streams/pets", headers={"Idempotency-Key": "d"}).status_code == 204
        assert [each["name"] for each in http.get("/v1/streams").json()] == ["pets"]


def asked(http: TestClient) -> None:
    assert http.post("/v1/streams/pets/predict", content=png(1)).json()["query_id"] == 0
    assert http.post("/v1/streams/pets/queries/0/label", json={"label": "dog"}).status_code == 200


def test_retry_after_may_be_a_date() -> None:
    assert waits("3", now=0.0) == 3.0
    assert waits(formatdate(1000.0, usegmt=True), now=990.0) == 10.0
    assert waits(formatdate(1000.0, usegmt=True), now=2000.0) == 0.0
    assert waits("soon", now=0.0) == waits(None, now=0.0) == waits("nan", now=0.0) == 1.0
