"""Class texts of a stream: sentences travel with it, and no word of theirs is a path."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from taps.learner import Learner
from taps.model.clip import Clip
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import CLASSES, client_of, png

TEXTS = {"cat": ["paws and/or whiskers", "~ a cat"], "dog": ["it barks"], "ship": ["it floats"]}
STREAM = {"name": "pets", "classes": CLASSES, "method": "zero_shot+", "settings": {"texts": TEXTS}}


def test_sentences_are_kept_with_the_stream(tmp_path: Path, tiny: Clip) -> None:
    alone = Learner(tiny, CLASSES, "zero_shot+", texts=TEXTS)
    for number in (1, 2):  # the second time the service has been restarted
        with Service(Store(str(tmp_path / "store")), tiny) as service:
            for http in client_of(service):
                if number == 1:
                    made = http.post("/v1/streams", json=STREAM)
                    assert made.status_code == 201, made.text
                    assert made.json()["settings"]["texts"] == TEXTS
                said = http.post("/v1/streams/pets/predict", content=png(number)).json()
                assert said["entropy"] == pytest.approx(alone.predict_one(png(number)).entropy)


def test_a_file_on_the_server_is_not_read(http: TestClient, tmp_path: Path) -> None:
    for texts in (str(tmp_path / "secret.json"), "secret.json", ["a"]):
        refused = http.post("/v1/streams", json={**STREAM, "settings": {"texts": texts}})
        assert refused.status_code == 422, refused.text
        assert "path" in refused.text
    lacking = http.post("/v1/streams", json={**STREAM, "settings": {"texts": {"cat": ["x"]}}})
    assert lacking.status_code == 422
    assert "'dog'" in lacking.text


def test_a_template_is_words_whatever_is_in_it(http: TestClient) -> None:
    made = http.post(
        "/v1/streams", json={**STREAM, "settings": {"template": ["a {} and/or a sketch", "~{}."]}}
    )
    assert made.status_code == 201, made.text


def test_what_belongs_beside_the_settings_is_sent_back(http: TestClient) -> None:
    refused = http.post("/v1/streams", json={**STREAM, "settings": {"method": "tda"}})
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("method is no setting")
