"""The service over HTTP, from the first image to the export."""

from __future__ import annotations

import csv
import io
import json
import zipfile

import pytest
from fastapi.testclient import TestClient

from taps.serve.schemas import IN_WORDS
from tests.serve.conftest import ASKING, CLASSES, png

S = "/v1/streams/pets"


def begin(http: TestClient, **more: object) -> None:
    body = {"name": "pets", "classes": CLASSES, "method": "taps", "settings": ASKING, "seed": 1, **more}
    made = http.post("/v1/streams", json=body)
    assert made.status_code == 201, made.text


def send(http: TestClient, number: int, **more: object) -> dict:
    answer = http.post(f"{S}/predict", files={"image": (f"{number}.png", png(number))}, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ask(http: TestClient, count: int = 1) -> list[int]:
    """Sends images until so many questions are open."""
    number, found = 0, []
    while len(found) < count:
        answer = send(http, number)
        number += 1
        if answer["query_id"] is not None:
            found.append(answer["query_id"])
    return found


def test_from_the_first_image_to_the_export(http: TestClient) -> None:
    begin(http)
    said = [send(http, number) for number in range(12)]
    assert [each["id"] for each in said] == list(range(12))
    assert all(
        each["recorded"] and abs(sum(g["probability"] for g in each["top"]) - 1) < 1e-5 for each in said
    )
    waiting = http.get(f"{S}/queries").json()
    asked = [each["query_id"] for each in said if each["query_id"] is not None]
    assert [each["id"] for each in waiting] == asked
    assert asked
    first = asked[0]
    assert http.get(f"{S}/predictions/{first}/image").content == png(first)
    changed = http.post(f"{S}/queries/{first}/label", json={"label": "dog"}).json()
    assert changed["changed"]
    assert changed["prediction"]["answer"] == "dog"
    stats = http.get(f"{S}/stats").json()
    assert (stats["seen"], stats["answered"], stats["open"]) == (12, 1, len(asked) - 1)
    assert stats["learner"]["answered"] == 1

    rows = list(csv.DictReader(io.StringIO(http.get(f"{S}/export").text)))
    assert [int(row["id"]) for row in rows] == list(range(12))
    assert rows[first]["answer"] == "dog"
    lines = http.get(f"{S}/export", params={"what": "labels", "format": "jsonl"}).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [first]
    archive = zipfile.ZipFile(io.BytesIO(http.get(f"{S}/export", params={"format": "zip"}).content))
    assert archive.namelist() == [f"dog/{first:08d}.png"]
    assert archive.read(archive.namelist()[0]) == png(first)


def test_a_raw_body_is_an_image_too(http: TestClient) -> None:
    begin(http)
    said = http.post(f"{S}/predict?name=a.png", content=png(1), headers={"Content-Type": "image/png"}).json()
    assert http.get(f"{S}/predictions/{said['id']}").json()["name"] == "a.png"


def test_a_retry_with_the_same_key_changes_nothing(http: TestClient) -> None:
    begin(http)
    first = send(http, 1, headers={"Idempotency-Key": "a"})
    again = send(http, 1, headers={"Idempotency-Key": "a"})
    assert again == {**first, "repeated": True}
    assert http.get(f"{S}/stats").json()["seen"] == 1
    other = http.post(f"{S}/predict", files={"image": png(2)}, headers={"Idempotency-Key": "a"})
    assert other.status_code == 409


def test_answers_twice_conflicting_and_taken_back(http: TestClient) -> None:
    begin(http)
    (id,) = ask(http)
    label = f"{S}/queries/{id}/label"
    assert http.post(label, json={"label": "dog"}).json()["changed"]
    assert not http.post(label, json={"label": "dog"}).json()["changed"]
    corrected = http.post(label, json={"label": 0}).json()
    assert corrected["changed"]
    assert corrected["prediction"]["answer"] == "cat"
    assert http.get(f"{S}/stats").json()["learner"]["corrected"] == 1
    assert http.post(f"{S}/queries/{id}/undo").json()["prediction"]["state"] == "open"
    assert http.post(f"{S}/queries/{id}/undo").status_code == 409
    assert http.post(f"{S}/queries/{id}/skip").json()["prediction"]["state"] == "skipped"
    assert not http.post(f"{S}/queries/{id}/skip").json()["changed"]
    assert http.post(label, json={"label": "dog"}).status_code == 409
    assert http.post(f"{S}/queries/{id}/undo").json()["prediction"]["state"] == "open"
    assert http.post(label, json={"label": "ship"}).status_code == 200


def test_answers_to_unknown_questions(http: TestClient) -> None:
    begin(http)
    asked = ask(http, 2)
    silent = next(id for id in range(100) if id not in asked)
    for id in (10_000, silent):
        assert http.post(f"{S}/queries/{id}/label", json={"label": "dog"}).status_code == 404
    refused = http.post(f"{S}/queries/{asked[0]}/label", json={"label": "bird"})
    assert refused.status_code == 422
    assert "'bird' is not one of the 3 classes" in refused.json()["detail"]
    assert f"add it with `POST {S}/classes`." in refused.json()["detail"]
    assert http.post(f"{S}/queries/{asked[0]}/label", json={"label": 7}).status_code == 422
    assert http.get(f"{S}/stats").json()["answered"] == 0


def test_a_class_added_while_questions_wait(http: TestClient) -> None:
    begin(http)
    (id,) = ask(http)
    assert http.post(f"{S}/classes", json={"names": ["bird"]}).json()["classes"] == [*CLASSES, "bird"]
    assert http.post(f"{S}/classes", json={"names": ["Bird"]}).status_code == 422
    assert (
        http.post(f"{S}/queries/{id}/label", json={"label": "bird"}).json()["prediction"]["answer"] == "bird"
    )
    assert http.post(f"{S}/queries/{id}/undo").status_code == 200


def test_an_expired_question_is_gone_and_its_budget_spent(http: TestClient) -> None:
    begin(http, deadline=1e-6)
    (id,) = ask(http)
    gone = http.post(f"{S}/queries/{id}/label", json={"label": "dog"})
    assert gone.status_code == 410
    stats = http.get(f"{S}/stats").json()
    assert (stats["expired"], stats["open"], stats["learner"]["asked"]) == (1, 0, 1)
    assert http.post(f"{S}/queries/{id}/undo").status_code == 410


def test_mistakes_are_told_in_sentences(http: TestClient) -> None:
    begin(http)
    taken = http.post("/v1/streams", json={"name": "pets", "classes": CLASSES})
    assert taken.status_code == 409
    assert "already" in taken.json()["detail"]
    for bad in (
        {"name": "../x", "classes": CLASSES},
        {"name": "x", "classes": ["one"]},
        {"name": "x", "classes": CLASSES, "method": "magic"},
        {"name": "x", "classes": CLASSES, "method": "taps", "settings": {"views": 0}},
        {"name": "x", "classes": CLASSES, "method": "taps", "settings": {"prompts": "/etc/passwd"}},
        {"name": "x", "classes": CLASSES, "unknown": 1},
    ):
        assert http.post("/v1/streams", json=bad).status_code == 422, bad
    assert [each["name"] for each in http.get("/v1/streams").json()] == ["pets"]
    assert http.post("/v1/streams/none/predict", content=png(1)).status_code == 404


def test_deleting_a_stream_leaves_nothing(http: TestClient, service) -> None:
    begin(http)
    ask(http, 2)
    assert http.delete(S).status_code == 204
    assert http.get(S).status_code == 404
    assert list(service.store.blobs.names()) == []
    assert not any((service.store.files / "snapshots").iterdir())
    begin(http)
    assert send(http, 0)["id"] == 0


def test_events_are_told_in_order(http: TestClient) -> None:
    begin(http)
    (id,) = ask(http)
    http.post(f"{S}/queries/{id}/label", json={"label": "dog"})
    text = http.get(f"{S}/events", params={"once": True}).text
    kinds = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    assert kinds == ["predicted"] * (id + 1) + ["answered"]
    later = http.get(f"{S}/events", params={"once": True}, headers={"Last-Event-ID": str(id + 1)}).text
    assert later.startswith(f"id: {id + 2}\nevent: answered\n")
    told = TestClient(http.app, base_url="http://127.0.0.1")  # raises what breaks a stream that has begun
    assert told.get(f"{S}/events", params={"once": True}, headers={"Last-Event-ID": "9" * 20}).text == ""


def test_health(http: TestClient) -> None:
    begin(http)
    send(http, 1)
    assert http.get("/healthz").json() == {"status": "alive"}
    assert http.get("/readyz").json()["status"] == "ready"


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        (b'{"label": "cat"}', "application/x-www-form-urlencoded", "Send a JSON object, with the header "),
        (b"[]", "application/json", "Send a JSON object, with the header "),
        (b'{"label": "cat"', "application/json", "The body is not JSON: "),
        (b'{"lable": "cat"}', "application/json", "body.lable: unknown field"),
        (b"{}", "application/json", "body: Value error, give a label"),
    ],
)
def test_a_body_that_is_not_understood_gets_a_sentence(
    http: TestClient, body: bytes, kind: str, sentence: str
) -> None:
    begin(http)
    answer = http.post(f"{S}/queries/0/label", content=body, headers={"Content-Type": kind})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(sentence)


@pytest.mark.parametrize("name", ["my pets", "-pets", "größe", "x" * 65, ""])
def test_which_names_a_stream_may_have_is_told_in_words(http: TestClient, name: str) -> None:
    answer = http.post("/v1/streams", json={"name": name, "classes": CLASSES})
    assert answer.status_code == 422
    assert answer.json()["detail"] == (
        "body.name: use 1 to 64 of the letters A to Z and a to z, digits, _ . and -, a letter or digit first"
    )


def test_every_pattern_is_told_in_words(http: TestClient) -> None:
    found = set()
    json.loads(
        http.get("/v1/openapi.json").text, object_hook=lambda each: found.add(str(each.get("pattern", "")))
    )
    assert found - {""} == set(IN_WORDS)
