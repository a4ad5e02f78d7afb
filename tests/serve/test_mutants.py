"""Images that were tampered with get clean refusals; a hundred thousand are in tests/chaos."""

from __future__ import annotations

from fastapi.testclient import TestClient

from taps.serve.service import Service
from tests.serve.conftest import CLASSES, beginning, client_of
from tests.serve.mutants import throw


def frozen(service: Service) -> TestClient:
    service.create(beginning(classes=CLASSES, method="zero_shot", settings={}), "test")
    return next(client_of(service))


def test_tampered_images_are_refused_cleanly(service: Service) -> None:
    http = frozen(service)
    found = throw(http, "/v1/streams/pets/predict", 400)
    assert found["statuses"].keys() > {200, 415, 422}
    assert http.get("/v1/streams/pets/stats").json()["seen"] == found["statuses"][200]
