"""Names that people send: nothing unseen, none that looks like another, none refused for its alphabet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from taps.data.names import read_names
from taps.errors import ClassNameError
from taps.learner import Learner
from taps.model.prompts.classes import class_index
from taps.plain_names import plain_name, refuse_alike, seen_letters
from taps.serve.service import Service
from tests.serve.conftest import CLASSES, beginning, png

UNSEEN = [
    "ca\u200bt", "dog\u202e", "\ufeffcat", "\x1b[31mred", "a\tb", "a\u2066b", "soft\u00adhyphen", "a\u2028b",
    "c\u200dat",
]  # fmt: skip
ALPHABETS = [
    "猫", "گربه", "می\u200cخواهم", "क्\u200dष", "👩\u200d🚀", "кот", "γάτα", "חתול", "고양이", "❤️", "naïve",
    "m²", "สุนัข",
]  # fmt: skip


@pytest.mark.parametrize("name", UNSEEN)
def test_what_nobody_sees_is_refused(http: TestClient, service: Service, tmp_path: Path, name: str) -> None:
    service.create(beginning(), "test")
    for path, body in (
        ("/v1/streams/pets/classes", {"names": [name]}),
        ("/v1/streams", {"name": "new", "classes": ["a", "b", name]}),
        ("/v1/tokens", {"name": name, "roles": ["label"]}),
    ):
        refused = http.post(path, json=body)
        assert refused.status_code == 422
        assert "U+" in refused.json()["detail"]
    assert http.post("/v1/streams/pets/predict", params={"name": name}, content=png(1)).status_code == 422
    (tmp_path / "list.txt").write_text(f"ant\nbee\n{name}x\n", encoding="utf-8")
    if "\u2028" not in name:  # which ends a line
        with pytest.raises(ClassNameError, match=r"U\+"):
            read_names(tmp_path / "list.txt")


@pytest.mark.parametrize("name", ALPHABETS)
def test_every_alphabet_is_taken(name: str) -> None:
    assert plain_name(name) == name
    refuse_alike([name], [each for each in (*ALPHABETS, "cat", "kot", "dog", "m3") if each != name])


@pytest.mark.parametrize(
    ("known", "name"),
    [("cat", "c\u0430t"), ("cat", "ＣＡＴ"), ("BAH", "ВАН"), ("fire truck", "fire  Truck"),
     ("a | cup", "сuр"), ("❤", "❤️"), ("хор", "xop")],
)  # fmt: skip
def test_names_that_look_the_same(http: TestClient, service: Service, known: str, name: str) -> None:
    service.create(beginning(classes=[*dict.fromkeys([*CLASSES, known])]), "test")
    refused = http.post("/v1/streams/pets/classes", json={"names": [name]})
    assert refused.status_code == 422
    assert "looks the same" in refused.json()["detail"]
    body = {"name": "new", "classes": ["ant", known, name]}
    assert "looks the same" in http.post("/v1/streams", json=body).json()["detail"]


def test_two_forms_of_one_name_are_one(http: TestClient, service: Service) -> None:
    service.create(beginning(), "test")
    added = http.post("/v1/streams/pets/classes", json={"names": ["Cafe\u0301"]})
    assert added.json()["classes"][-1] == "Café"
    assert class_index(["a", "Café"], "Cafe\u0301") == 1


def test_learners_and_streams_of_before_open(tiny: Any, service: Service, tmp_path: Path) -> None:
    names = ["cat", "c\u0430t", "\u200bdog"]
    Learner(tiny, names, "zero_shot").save(tmp_path / "learner")
    assert Learner.load(tmp_path / "learner", tiny).classes == tuple(names)
    service.create(beginning(classes=names), "test")


def test_a_file_is_taken_whatever_its_name(http: TestClient, service: Service) -> None:
    service.create(beginning(), "test")
    sent = http.post("/v1/streams/pets/predict", files={"image": ("a\u202eb\x1b[2J.png", png(1))})
    assert sent.status_code == 200
    name = http.get("/v1/streams/pets/predictions/0").json()["name"]
    assert name == seen_letters(name)


@pytest.mark.parametrize("label", [True, False, 1.0, 1.5, [1], {"a": 1}])
def test_a_label_is_a_name_or_a_whole_number(http: TestClient, service: Service, label: Any) -> None:
    service.create(beginning(), "test")
    http.post("/v1/streams/pets/predict", content=png(1))
    for body in ({"label": label}, {"no": [label]}):
        assert http.post("/v1/streams/pets/predictions/0/label", json=body).status_code == 422
    for body in ({"none": 1}, {"none": "yes"}, {"label": 0, "none": 0}):
        assert http.post("/v1/streams/pets/predictions/0/label", json=body).status_code == 422
    assert http.post("/v1/streams/pets/predictions/0/label", json={"label": 1}).status_code == 200


def test_why_a_threshold_is_null_is_described(http: TestClient) -> None:
    schemas = http.get("/v1/openapi.json").json()["components"]["schemas"]
    for name in ("Answered", "Prediction", "Why"):
        assert "ull" in schemas[name]["properties"]["threshold"]["description"]
