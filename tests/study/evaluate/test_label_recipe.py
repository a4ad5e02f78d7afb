"""recipes/label.py on a miniature zip."""

from __future__ import annotations

import argparse
import io
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

import taps
from taps.data import load_dataset
from taps.learner import Learner

RECIPES = Path(__file__).parents[3] / "recipes"
CLASSES = ("field", "forest", "river")
VIEWS = 4


@pytest.fixture
def label(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The recipe as a module, its workers as threads; it takes one thread of torch's, which is put back."""
    monkeypatch.syspath_prepend(str(RECIPES))
    import label as recipe

    monkeypatch.setattr(recipe, "ProcessPoolExecutor", lambda jobs, mp_context: ThreadPoolExecutor(jobs))
    threads = torch.get_num_threads()
    yield recipe
    torch.set_num_threads(threads)


@pytest.fixture
def features(label: ModuleType, tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(tmp_path / "rsscn7.zip", "w") as archive:
        for place in range(24):
            buffer = io.BytesIO()
            colour = np.eye(3)[place % 3] * 150
            pixels = (colour + rng.integers(0, 100, (40, 36, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(buffer, format="PNG")
            archive.writestr(f"{CLASSES[place % 3]}/{place}.png", buffer.getvalue())
    given = argparse.Namespace(model="tiny", views=VIEWS, limit=None, out=tmp_path, data=tmp_path)
    label.encode_one("rsscn7", given)
    return label.feature_file("rsscn7", tmp_path, VIEWS)


def test_stored_features_are_those_of_the_images(label, features, tmp_path):
    """Zero-shot and the views' mean say of stored features what they say of the images themselves."""
    clip, dataset = taps.load_clip("tiny", device="cpu"), load_dataset(tmp_path / "rsscn7.zip")
    held = np.load(features)
    assert held["features"].shape == (24, VIEWS, clip.config.embed_dim)
    assert sorted(held["labels"]) == sorted(sample.label for sample in dataset.samples)
    stored = label.with_stored_features(clip, torch.from_numpy(held["features"]).float())
    chosen = np.random.default_rng(0).permutation(len(dataset))
    for method, settings in (("zero_shot", {}), ("view_ensemble", {"views": VIEWS, "fraction": 0.5})):
        with_images = Learner(clip, dataset.classes, method, **settings)
        with_features = Learner(stored, dataset.classes, method, **settings)
        for place, index in enumerate(chosen.tolist()):
            views = torch.arange(place * VIEWS, place * VIEWS + with_features.settings.views)
            probs = with_features.method.predict(views.view(-1, 1, 1, 1)).probs
            expected = with_images.method.predict(label.view(clip, dataset, index, VIEWS)).probs
            assert torch.allclose(probs, expected, atol=2e-3)  # stored in half precision


def test_situations_are_what_they_are_called(label):
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 50))

    def stream(situation: str, limit: int | None = 100) -> np.ndarray:
        job = {"order": 1, "sorted": False, "situation": situation, "limit": limit}
        return labels[label.stream_of(labels, job)]

    assert len(set(stream("few classes"))) == 3
    whole = stream("one class mostly", limit=None)
    assert sorted(np.bincount(whole))[-1] == 50
    assert len(whole) == 62
    in_turn = stream("class after class")
    assert (np.diff(in_turn) != 0).sum() == len(set(in_turn)) - 1
