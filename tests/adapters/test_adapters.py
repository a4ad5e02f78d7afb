"""Adapters: what comes out is what the learner or the data set says itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from taps.adapters import (
    label_config,
    read_csv,
    read_fiftyone,
    read_label_studio,
    with_labels,
    write_csv,
    write_fiftyone,
    write_label_studio,
)
from taps.data import load_dataset
from taps.errors import DataError
from taps.streams.row import Row
from taps.types import PixelArray

Picture = Callable[[int], PixelArray]
NAMES = ["ant", "bee", "cat"]


def row(path: str, label: str, probability: float, state: str, answer: str | None = None) -> Row:
    top = [[label, probability]]
    return Row(
        id=0, index=NAMES.index(label), label=label, entropy=0.5, seconds=0.01, top=top, name=path,
        state=state, answer=answer,
    )  # fmt: skip


ROWS = [
    row("/photos/ant/1.jpg", "bee", 0.75, "answered", "ant"),
    row("/photos/bee/1 ü&.png", "bee", 0.9, "unqueried"),
    row("/photos/cat/3.jpg", "ant", 0.4, "open"),
]


def test_csv_there_and_back(tmp_path: Path) -> None:
    write_csv(tmp_path / "answers.csv", ROWS)
    assert read_csv(tmp_path / "answers.csv") == {"/photos/ant/1.jpg": "ant"}


def test_fiftyone_files(tmp_path: Path) -> None:
    write_fiftyone(tmp_path, ROWS)
    files = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert files["data.json"] == {
        "0000000.jpg": ROWS[0].name,
        "0000001.png": ROWS[1].name,
        "0000002.jpg": ROWS[2].name,
    }
    assert files["predictions.json"]["labels"]["0000002"] == {"label": "ant", "confidence": 0.4}
    assert [each["label"] for each in files["questions.json"]["labels"].values()] == [
        "asked",
        "not asked",
        "asked",
    ]
    assert read_fiftyone(tmp_path / "answers.json") == {ROWS[0].name: "ant"}
    assert read_fiftyone(tmp_path / "predictions.json") == {each.name: each.label for each in ROWS}


def test_fiftyone_export_with_its_images(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.jpg").touch()
    (tmp_path / "labels.json").write_text(json.dumps({"classes": NAMES, "labels": {"1": 2}}))
    assert read_fiftyone(tmp_path / "labels.json") == {str(tmp_path / "data" / "1.jpg"): "cat"}
    (tmp_path / "labels.json").write_text(json.dumps({"classes": NAMES, "labels": {"2": 2}}))
    with pytest.raises(DataError, match="labels '2', which no image is called"):
        read_fiftyone(tmp_path / "labels.json")


def test_fiftyone_manifest_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(json.dumps({"ant/1": "/photos/ant/1.jpg", "a.b": "/photos/a.b.jpg"}))
    (tmp_path / "labels.json").write_text(
        json.dumps({"classes": None, "labels": {"ant/1": "ant", "a.b": "bee"}})
    )
    assert read_fiftyone(tmp_path / "labels.json") == {"/photos/ant/1.jpg": "ant", "/photos/a.b.jpg": "bee"}


def test_label_studio_tasks(tmp_path: Path) -> None:
    write_label_studio(tmp_path / "tasks.json", ROWS, root="/photos")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert tasks[1]["data"]["image"] == "/data/local-files/?d=bee/1%20%C3%BC%26.png"
    result = tasks[2]["predictions"][0]["result"][0]
    assert (result["type"], result["value"]) == ("choices", {"choices": ["ant"]})
    assert label_config(["a & b", "c"]).count("<Choice ") == 2
    assert 'value="a &amp; b"' in label_config(["a & b", "c"])
    for tag in ("from_name", "to_name"):
        assert f'name="{result[tag]}"' in label_config(NAMES)


def test_label_studio_exports(tmp_path: Path) -> None:
    def said(*labels: str, skipped: bool = False) -> dict[str, object]:
        choices = {"type": "choices", "value": {"choices": list(labels)}}
        return {"result": [choices], "was_cancelled": skipped}

    url = "/data/local-files/?d=photos/1%20%C3%BC.png"
    tasks = [
        {"data": {"image": url}, "annotations": [said("ant"), said("bee"), said("cat", skipped=True)]},
        {"data": {"image": "https://host/photos/2.png"}, "annotations": [said("ant")]},
        {"data": {"image": "x.png", "path": "/photos/3.png"}, "annotations": []},
        {"image": "photos/4.png", "class": "cat", "id": 4},  # JSON-MIN
    ]
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    assert read_label_studio(tmp_path / "export.json") == {
        "photos/1 ü.png": "bee",
        "/photos/2.png": "ant",
        "photos/4.png": "cat",
    }
    (tmp_path / "export.json").write_text("{}")
    with pytest.raises(DataError, match="export the project as JSON"):
        read_label_studio(tmp_path / "export.json")


def test_labels_find_their_images_by_the_end_of_the_path(pictures: Path) -> None:
    data = load_dataset(pictures)
    again = with_labels(data, {str(pictures / "bee" / "3.png"): "cat", "elsewhere/ant/0.png": "bee"})
    found = {sample.path: sample.label for sample in again.samples if sample.label is not None}
    assert found == {"bee/3.png": 2, "ant/0.png": 1}
    with pytest.raises(DataError, match="could be 3 images"):
        with_labels(data, {"3.png": "cat"})
    with pytest.raises(DataError, match="not one of the 24 images"):
        with_labels(data, {"99.png": "cat"})
    with pytest.raises(DataError, match="not one of the 3 classes"):
        with_labels(data, {"ant/0.png": "dog"})
