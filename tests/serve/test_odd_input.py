"""Odd input gets a sentence, never an internal error; words are words, whatever files are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import delete

from taps.errors import SettingsError
from taps.serve import tables as t
from taps.serve.labelstudio import LabelStudio
from taps.serve.service import Service, check_settings
from tests.serve.conftest import ASKING, CLASSES, client_of

XML = (
    '<View><Image name="i" value="$image"/><Choices name="c" toName="i">'
    '<Choice value="a"/><Choice value="b"/></Choices></View>'
)


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = {"a": found}
    return found


@pytest.mark.parametrize("header", [{"Host": "[::1"}, {"Origin": "http://["}, {"Host": ""}])
def test_headers_that_are_no_address(service: Service, header: dict[str, str]) -> None:
    for http in client_of(service, hosts=("127.0.0.1",)):
        assert http.post("/v1/streams", json={}, headers=header).status_code in (403, 421)


@pytest.mark.parametrize(
    "settings",
    [
        {"prompts": ["/etc/passwd"]}, {"prompts": {"a": 1}}, {"prompts": 5}, {"views": 1e9}, {"views": 10**9},
        {"prompts": "~root"}, {"source": "~"}, {"source": "stats.safetensors"}, {"views": nested(500)},
        {"prompts": nested(500)}, {"align_layers": ["/etc"]},
        {"rate": 10**400}, {"no such": nested(500)},
    ],
    ids=lambda settings: str(settings)[:30],
)  # fmt: skip
def test_settings_that_make_no_sense(http: TestClient, settings: dict[str, Any]) -> None:
    body = {"name": "x", "classes": CLASSES, "method": "taps", "settings": settings}
    refused = http.post("/v1/streams", json=body)
    assert refused.status_code == 422, refused.text
    assert http.get("/v1/streams").json() == []


@pytest.mark.parametrize(
    "body",
    [
        {"project": 5}, {"project": [1]}, {"project": {"id": 5, "label_config": XML}, "task": 5},
        {"project": {"id": 5, "label_config": XML}, "annotation": "x"},
        {"action": "ANNOTATIONS_DELETED", "project": {"id": 5, "label_config": XML}, "annotations": 5},
        {"action": "ANNOTATIONS_DELETED", "project": {"id": 5, "label_config": XML}, "annotations": [5]},
        {"action": ["x"]},
    ],
    ids=lambda body: str(body)[:40],
)  # fmt: skip
def test_webhooks_that_make_no_sense(service: Service, body: dict[str, Any]) -> None:
    for http in client_of(service, studio=LabelStudio("http://127.0.0.1:9")):
        sent = {"action": "ANNOTATION_CREATED", **body}
        assert http.post("/label-studio/webhook", json=sent).status_code in (202, 422)


@pytest.mark.parametrize("word", ["random", "hand", "soft"])
def test_a_file_does_not_change_what_a_word_means(
    http: TestClient, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path(word).touch()
    name = {"random": "policy", "hand": "prompts", "soft": "budget"}[word]
    body = {"name": "x", "classes": CLASSES, "method": "taps", "settings": {**ASKING, name: word}}
    assert http.post("/v1/streams", json=body).status_code == 201
    with pytest.raises(SettingsError, match="is a path"):
        check_settings("taps", {"prompts": str(tmp_path)})


def test_an_emptied_table_of_tokens_lets_nobody_in(service: Service) -> None:
    for http in client_of(service):
        http.app.state.taps.tokens.create("first", ("admin",))
        assert http.get("/v1/streams").status_code == 401
        with service.store.database.write() as connection:
            connection.execute(delete(t.tokens))
        assert http.get("/v1/streams").status_code == 401
    for http in client_of(service):  # after a new start as well
        assert http.get("/v1/streams").status_code == 401


def test_strangers_are_not_told_what_is_wrong(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "troubles", lambda: ["/var/lib/taps is full."])
    for http in client_of(service):
        assert http.get("/readyz").json()["troubles"] == ["/var/lib/taps is full."]
        _, secret = http.app.state.taps.tokens.create("first", ("predict",))
        told = http.get("/readyz")
        assert (told.status_code, told.json()["status"]) == (503, "troubled")
        assert "/var" not in told.text
        known = http.get("/readyz", headers={"Authorization": f"Bearer {secret}"})
        assert known.json()["troubles"] == ["/var/lib/taps is full."]
