"""The feature store gives the bits that decoding gives, goes on after a stop, and knows its damage."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import taps
from taps.data import Dataset, corrupt_dataset, load_dataset
from taps.errors import ImageError
from taps.learner import Learner
from taps.learner.desk import Desk
from taps.learner.prepared import DrawnImage
from taps.methods.registry import all_methods, find_method
from taps.methods.settings import ViewSettings
from taps.streams.record import PREDICTIONS, Pace
from taps.study.evaluate import features, jobs
from taps.study.evaluate.features import ARRAY, META, FeatureStore, data_digest, find_store, store_key
from taps.study.evaluate.jobs import Job, run_job

VIEWS = 3


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(features.PLACE, str(tmp_path / "stores"))
    monkeypatch.setattr(features, "PART", 7)
    return tmp_path / "stores"


def store_of(dataset: Dataset, views: int = VIEWS) -> FeatureStore:
    key = store_key(taps.load_clip("tiny"), ViewSettings(views=views))
    return FeatureStore(replace(key, data=data_digest(dataset)), len(dataset))


def made(dataset: Dataset, views: int = VIEWS) -> FeatureStore:
    store = store_of(dataset, views)
    assert store.make(taps.load_clip("tiny"), dataset)
    return store


def rows(folder: Path) -> list[dict[str, str]]:
    found = list(csv.DictReader((folder / PREDICTIONS).read_text().splitlines()))
    return [{name: row[name] for name in row if name != "seconds"} for row in found]


def test_features_are_the_bits_of_an_encoder_that_is_called_by_hand(pictures: Path) -> None:
    clip, dataset = taps.load_clip("tiny"), load_dataset(pictures)
    store = made(dataset)
    learner = Learner(clip, ["image", "photo"], "view_ensemble", views=VIEWS)
    for index in range(len(dataset)):
        views = learner._views(DrawnImage(dataset.image(index), 0, index))
        with torch.no_grad():
            found = torch.nn.functional.normalize(clip.encode_image(clip.preprocess(views)), dim=-1)
        assert torch.equal(store.image(index).features, found)  # type: ignore[arg-type]


METHODS = [
    ("zero_shot", {}),
    ("view_ensemble", {"views": VIEWS, "fraction": 0.5}),
    ("tda", {}),
    ("dota", {"views": VIEWS}),
    ("linear_probe", {"rate": 0.5, "policy": "paced"}),
    ("view_ensemble+", {"views": VIEWS, "rate": 0.5}),
]


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bits of every prediction."""
    said: list[bytes] = []
    conclude = Desk.conclude

    def note(self: Desk, *given: Any) -> Any:
        found = conclude(self, *given)
        said.append(found.probs.tobytes())
        return found

    monkeypatch.setattr(Desk, "conclude", note)
    monkeypatch.setattr(jobs, "_zero_shot_ms", lambda *given: None)
    return said


def never(*given: Any) -> Any:
    raise AssertionError("an image was decoded")


@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_predictions_are_those_of_the_stream_that_decodes_to_the_bit(
    tmp_path: Path,
    pictures: Path,
    make_job: Callable[..., Job],
    monkeypatch: pytest.MonkeyPatch,
    spied: list[bytes],
    method: str,
    settings: dict[str, Any],
) -> None:
    job = make_job(method, settings=settings)
    run_job(job, tmp_path / "decoded")
    decoded = spied.copy()
    spied.clear()
    made(load_dataset(pictures), settings.get("views", 1))
    monkeypatch.setattr(Dataset, "image", never)
    run_job(job, tmp_path / "stored")
    assert spied == decoded
    assert len(decoded) == 24
    assert rows(job.folder(tmp_path / "stored")) == rows(job.folder(tmp_path / "decoded"))


def without_prompts() -> list[str]:
    return [name for name, each in all_methods().items() if each.prompts in (None, "optional", "hand")]


def test_methods_that_need_features_alone_say_the_same_from_them(tiny: Any, pictures: Path) -> None:
    dataset = load_dataset(pictures).take([0, 9])
    alone, stores = [], {views: made(dataset, views) for views in (1, 3)}
    for method in without_prompts():
        settings = {"views": 3} if "views" in find_method(method).known else {}
        here, there = (Learner(tiny, ["cat", "dog", "owl"], method, **settings) for _ in range(2))
        if not here.method.needs_features_only:
            continue
        alone.append(method)
        for index in range(2):
            drawn = here.predict_one(DrawnImage(dataset.image(index), 0, index))
            assert (
                there.predict_one(stores[here.settings.views].image(index)).probs.tobytes()
                == drawn.probs.tobytes()
            ), method
    assert {"zero_shot", "tda", "dota", "zero_shot+", "view_ensemble+", "mta"} <= {*alone}
    assert not {"tpt", "rlcf", "taps", "gs_bias", "tca", "memo"} & {*alone}


STATELESS = (
    "zero_shot",
    "view_ensemble",
    "zero",
    "mta",
    "tps",
    "tpt",
    "memo",
    "ctpt",
    "otpt",
    "rtpt",
    "rlcf",
    "gs_bias",
)


def test_methods_without_a_state_are_those_that_say_so(tiny: Any) -> None:
    found = {name for name in without_prompts() if Learner(tiny, ["cat", "dog"], name).method.stateless}
    assert found == {*STATELESS}


@pytest.mark.parametrize("method", STATELESS)
def test_a_method_without_a_state_says_the_same_in_every_order_and_by_every_seed(
    tiny: Any, pictures: Path, method: str
) -> None:
    dataset = load_dataset(pictures).take([0, 9, 17])
    settings = {} if method == "zero_shot" else {"views": 3, "fraction": 0.7}
    said = []
    for seed, order in ((1, (0, 1, 2)), (2, (2, 0, 1))):
        learner = Learner(tiny, ["cat", "dog", "owl"], method, seed=seed, **settings)
        assert learner.method.stateless
        of = {i: learner.predict_one(DrawnImage(dataset.image(i), 0, i)).probs.tobytes() for i in order}
        said.append([of[i] for i in range(3)])
    assert said[0] == said[1]


@pytest.mark.parametrize("method", ["view_ensemble", "tpt"])
def test_a_method_without_a_state_predicts_every_image_once(
    tmp_path: Path, make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    settings = {"views": 2}
    for seed in (1, 2):
        run_job(make_job(method, seed, settings=settings), tmp_path / f"alone {seed}")
    run_job(make_job(method, 1, settings=settings), tmp_path / "both")
    monkeypatch.setattr(jobs, "_zero_shot_ms", lambda *given: None)
    monkeypatch.setattr(Dataset, "image", never)
    second = make_job(method, 2, settings=settings)
    run_job(second, tmp_path / "both")
    assert rows(second.folder(tmp_path / "both")) == rows(second.folder(tmp_path / "alone 2"))
    with pytest.raises(AssertionError, match="decoded"):
        run_job(make_job(method, 2, settings={"views": 3}), tmp_path / "both", pace=Pace(0))


def test_a_stopped_pass_goes_on(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, asked = load_dataset(pictures), iter([False, False, True, True])
    store = store_of(dataset)
    assert not store.make(taps.load_clip("tiny"), dataset, stop=lambda: next(asked))
    assert find_store(taps.load_clip("tiny"), dataset, ViewSettings(views=VIEWS)) is None
    again, told = store_of(dataset), []
    encoded: list[int] = []
    image = Dataset.image
    monkeypatch.setattr(Dataset, "image", lambda self, index: encoded.append(index) or image(self, index))
    assert again.make(taps.load_clip("tiny"), dataset, lambda done, total: told.append((done, total)))
    assert encoded == list(range(14, 24))
    assert told[-1] == (24, 24)
    whole = np.load(again.folder / ARRAY)
    shutil.rmtree(again.folder)
    assert np.array_equal(whole, np.load(made(dataset).folder / ARRAY))


@pytest.mark.parametrize("what", ["bit", "cut", "json", "gone"])
def test_a_damaged_store_is_named_not_used_and_made_again(
    pictures: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    dataset, clip = load_dataset(pictures), taps.load_clip("tiny")
    store = made(dataset)
    whole = (store.folder / ARRAY).read_bytes()
    file = store.folder / (META if what == "json" else ARRAY)
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.unlink() if what == "gone" else file.write_bytes(data[:-50] if what == "cut" else data)
    assert find_store(clip, dataset, ViewSettings(views=VIEWS)) is None
    assert str(store.folder) in caplog.text
    again = made(dataset)
    assert (again.folder / ARRAY).read_bytes() == whole
    assert find_store(clip, dataset, ViewSettings(views=VIEWS)) is not None


def test_changed_images_views_and_corruptions_are_other_stores(tmp_path: Path, pictures: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(pictures, root)
    dataset, clip = load_dataset(root), taps.load_clip("tiny")
    made(dataset)
    views = ViewSettings(views=VIEWS)
    assert find_store(clip, load_dataset(pictures), views) is not None  # the same images elsewhere
    assert find_store(clip, dataset, ViewSettings(views=2)) is None
    assert find_store(clip, dataset, ViewSettings(views=VIEWS, augmix=True)) is None
    assert find_store(clip, corrupt_dataset(dataset, "mix"), views) is None
    shutil.copy(root / "ant" / "0.png", root / "ant" / "1.png")
    assert find_store(clip, dataset, views) is None


def test_an_image_that_cannot_be_read_is_told_as_when_it_is_decoded(tmp_path: Path, pictures: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(pictures, root)
    (root / "bee" / "3.png").write_bytes(b"no image")
    dataset = load_dataset(root)
    store = made(dataset)
    index = [sample.path for sample in dataset.samples].index("bee/3.png")
    with pytest.raises(ImageError) as decoded:
        dataset.image(index)
    with pytest.raises(ImageError, match=r"bee/3\.png") as stored:
        store.image(index)
    assert str(stored.value) == str(decoded.value)
    assert FeatureStore(store.key, len(dataset)).broken == {index: str(decoded.value)}


def test_seconds_are_those_of_the_encoder_and_the_method(pictures: Path) -> None:
    dataset = load_dataset(pictures)
    store = made(dataset, 1)
    known = store.image(0)
    assert known.seconds > 0
    learner = Learner(taps.load_clip("tiny"), ["cat", "dog"], "zero_shot")
    assert learner.predict_one(replace(known, seconds=10.0)).seconds > 10.0
