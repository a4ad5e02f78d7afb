"""Adapters: what comes out is what the learner or the data set says itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from taps import Learner
from taps.adapters import (
    PoolLearner,
    RiverClassifier,
    TapsClassifier,
    TorchDataset,
    from_huggingface,
    from_torch,
    label_config,
    read_csv,
    read_fiftyone,
    read_label_studio,
    with_labels,
    write_csv,
    write_fiftyone,
    write_label_studio,
)
from taps.clip import Clip
from taps.data import load_dataset
from taps.errors import DataError, SettingsError
from taps.session.row import Row
from taps.types import PixelArray
from tests.adapters.duck import DuckDataset, DuckFeatures, DuckImage, DuckLabel
from tests.streams import same_state

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


def duck(picture: Picture, labels: list[int]) -> DuckDataset:
    features = DuckFeatures(id=object(), image=DuckImage(), label=DuckLabel(NAMES))
    rows = {"id": labels, "image": [picture(i) for i in range(len(labels))], "label": labels}
    return DuckDataset.from_dict(rows, features)


def test_hugging_face_images_and_class_labels(picture: Picture) -> None:
    data = from_huggingface(duck(picture, [2, 0, -1]))
    assert data.classes == ("ant", "bee", "cat")
    assert data.labels == [2, 0, None]
    for i in range(3):
        np.testing.assert_array_equal(data.image(i), picture(i))
    assert data.read(0).startswith(b"\x89PNG")


def test_hugging_face_itself(picture: Picture) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(picture=datasets.Image(), kind=datasets.Value("string"))
    rows = {"picture": [picture(i) for i in range(3)], "kind": ["cat", "dog", "cat"]}
    data = from_huggingface(datasets.Dataset.from_dict(rows, features=features), label="kind")
    assert data.classes == ("cat", "dog")
    assert data.labels == [0, 1, 0]
    np.testing.assert_array_equal(data.image(2), picture(2))


def test_hugging_face_refusals(picture: Picture) -> None:
    with pytest.raises(DataError, match=r"split=\"test\""):
        from_huggingface({"train": duck(picture, [0])})
    with pytest.raises(DataError, match="Unknown column 'kind'; the columns are id, image, label"):
        from_huggingface(duck(picture, [0]), label="kind")
    with pytest.raises(DataError, match="The label 7 is out of range"):
        from_huggingface(duck(picture, [7]))
    with pytest.raises(DataError, match="labels are numbers"):
        from_huggingface(duck(picture, [0, 1]), label="id")


def test_torch_there_and_back(pictures: Path) -> None:
    data = load_dataset(pictures)
    there = TorchDataset(data)
    back = from_torch(there)
    assert back.classes == data.classes
    assert back.labels == data.labels
    np.testing.assert_array_equal(back.image(5), data.image(5))
    tensors = [(torch.tensor(pixels).permute(2, 0, 1) / 255, torch.tensor(label)) for pixels, label in there]
    of_tensors = from_torch(tensors, classes=NAMES)
    assert of_tensors.labels == data.labels
    np.testing.assert_array_equal(of_tensors.image(5), data.image(5))


def test_scikit_learn_is_the_learner_and_predicting_leaves_no_trace(tiny: Clip, picture: Picture) -> None:
    settings = {"views": 4, "buffer": 4}
    ours = TapsClassifier(tiny, "taps", 3, settings)
    images, labels = [picture(i) for i in range(5)], ["ant", "cat", "bee", "ant", "cat"]
    with pytest.raises(SettingsError, match="needs classes"):
        ours.partial_fit(images, labels)
    ours.partial_fit(images[:3], labels[:3], classes=NAMES)
    learner = Learner(tiny, NAMES, "taps", seed=3, **settings)
    for image, label in zip(images[:3], labels[:3], strict=True):
        learner.learn_one(learner.predict_one(image).id, label)
    before = ours.learner_.state_dict()
    probs = ours.predict_proba(images)
    assert same_state(ours.learner_.state_dict(), before)
    np.testing.assert_allclose(probs[0], learner.predict_one(images[0]).probs, rtol=1e-5)
    assert probs.shape == (5, 3)
    assert list(ours.predict(images)) == [NAMES[k] for k in probs.argmax(axis=1)]
    again = TapsClassifier(**ours.get_params())
    again.fit(images[:3], labels[:3])
    np.testing.assert_array_equal(again.predict_proba(images), probs)
    with pytest.raises(SettingsError, match="Unknown parameter 'metod'"):
        again.set_params(metod="tpt")


def test_river_sees_an_image_once(tiny: Clip, picture: Picture) -> None:
    model = RiverClassifier(Learner(tiny, NAMES, "taps", views=4))
    image = picture(1)
    chances = model.predict_proba_one(image)
    assert list(chances) == NAMES
    assert math.isclose(sum(chances.values()), 1, rel_tol=1e-5)
    assert model.predict_one(image) == max(chances, key=lambda name: chances[name])
    model.learn_one(image, "cat")
    model.learn_one(picture(2), "bee")  # never predicted: seen now
    assert (model.learner.seen, model.learner.answered) == (2, 2)


def test_a_pool_gives_its_most_uncertain_images(tiny: Clip, picture: Picture) -> None:
    estimator = TapsClassifier(tiny, settings={"views": 1}).start(NAMES)
    images = [picture(i) for i in range(6)]
    entropies = [-sum(p * math.log(p) for p in row) for row in estimator.predict_proba(images).tolist()]
    pool = PoolLearner(estimator)
    chosen, which = pool.query(images, n_instances=3)
    assert chosen.tolist() == sorted(range(6), key=lambda i: -entropies[i])[:3]
    assert which[0] is images[chosen[0]]
    pool.teach(which, ["ant", "bee", "cat"])
    assert estimator.learner_.answered == 3


def test_csv_there_and_back(tmp_path: Path) -> None:
    write_csv(tmp_path / "answers.csv", ROWS)
    assert read_csv(tmp_path / "answers.csv") == {"/photos/ant/1.jpg": "ant"}


def test_fiftyone_files(tmp_path: Path) -> None:
    write_fiftyone(tmp_path, ROWS)
    files = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
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
    found = {sample.key: sample.label for sample in again.samples if sample.label is not None}
    assert found == {"bee/3.png": 2, "ant/0.png": 1}
    with pytest.raises(DataError, match="could be 3 images"):
        with_labels(data, {"3.png": "cat"})
    with pytest.raises(DataError, match="not one of the 24 images"):
        with_labels(data, {"99.png": "cat"})
    with pytest.raises(DataError, match="not one of the 3 classes"):
        with_labels(data, {"ant/0.png": "dog"})
