"""Corruptions of pixels and of data sets."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from taps.data import KINDS, Dataset, corrupt, corrupt_dataset, load_dataset
from taps.errors import SettingsError
from taps.types import PixelArray

CHANCE = {"gaussian_noise", "shot_noise", "motion_blur"}
# Their severities differ in kind.
UNORDERED = {"invert", "sketch", "cartoon"}


def scene(height: int = 40, width: int = 56) -> PixelArray:
    """A bright disc on a dark slope: edges, flat parts and colours."""
    rows, columns = np.mgrid[:height, :width]
    image = np.stack([rows * 2 + 20, columns * 2 + 10, (rows + columns) // 2 + 40], axis=2)
    image[(rows - height / 2) ** 2 + (columns - width / 2) ** 2 < (height / 4) ** 2] = (230, 200, 40)
    return image.astype(np.uint8)


@pytest.mark.parametrize("kind", list(KINDS))
@settings(max_examples=12)
@given(
    height=st.integers(1, 33), width=st.integers(1, 33), severity=st.integers(1, 5), seed=st.integers(0, 9)
)
def test_any_size_stays_an_image(kind: str, height: int, width: int, severity: int, seed: int) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    before = image.copy()
    results = [corrupt(image, kind, severity, np.random.default_rng(seed)) for _ in range(2)]
    assert results[0].shape == image.shape
    assert results[0].dtype == np.uint8
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(image, before), "the input is not touched"


@pytest.mark.parametrize("kind", list(KINDS))
def test_something_happens_and_chance_is_the_generators(kind: str) -> None:
    image = scene()
    first, second = (corrupt(image, kind, 3, np.random.default_rng(seed)) for seed in (1, 2))
    assert not np.array_equal(first, image)
    assert np.array_equal(first, second) == (kind not in CHANCE)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - UNORDERED))
def test_heavier_is_further_from_the_image(kind: str) -> None:
    image = scene(96, 96)
    far = [
        np.abs(corrupt(image, kind, severity, np.random.default_rng(5)).astype(float) - image).mean()
        for severity in (1, 3, 5)
    ]
    assert far[0] < far[1] < far[2]


def test_known_values() -> None:
    rng = np.random.default_rng(0)
    image = scene()
    assert np.array_equal(corrupt(image, "invert", 1, rng), 255 - image)
    grey = corrupt(image, "greyscale", 5, rng)
    assert (grey == grey[..., :1]).all()
    flat = np.full((200, 200, 3), 128, np.uint8)
    assert corrupt(flat, "gaussian_noise", 3, rng).astype(float).std() == pytest.approx(0.15 * 255, rel=0.05)
    assert corrupt(flat, "shot_noise", 2, rng).astype(float).mean() == pytest.approx(128, abs=1.0)
    assert np.array_equal(corrupt(flat, "motion_blur", 5, rng), flat)
    narrowed = corrupt(image, "contrast", 3, rng).astype(float)
    assert narrowed.std(axis=(0, 1)) == pytest.approx(0.30 * image.std(axis=(0, 1)), abs=0.6)


def test_a_sketch_is_dark_lines_on_white() -> None:
    drawn = corrupt(scene(96, 96), "sketch", 2, np.random.default_rng(0))
    assert (drawn == drawn[..., :1]).all()
    assert np.median(drawn) > 225
    assert drawn.min() < 120


@pytest.mark.parametrize(("kind", "severity"), [("fog", 3), ("jpeg", 0), ("jpeg", 6)])
def test_unknown_kinds_and_severities(kind: str, severity: int) -> None:
    with pytest.raises(SettingsError, match=r"fog|severity"):
        corrupt(scene(), kind, severity, np.random.default_rng(0))


@pytest.fixture
def photos(tmp_path: Path) -> Dataset:
    for i in range(12):
        path = tmp_path / "ab"[i % 2] / f"{i:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(scene(20 + i, 30)).save(path)
    return load_dataset(tmp_path)


def test_a_corrupted_data_set(photos: Dataset) -> None:
    data = corrupt_dataset(photos, ["gaussian_noise", "invert"], severity=4, seed=3, fraction=0.5)
    noted = [i for i, sample in enumerate(data.samples) if sample.note]
    assert len(noted) == 6
    for i, sample in enumerate(data.samples):
        clean, seen = photos.image(i), data.image(i)
        if sample.note:
            kind, severity = sample.note.split()
            expected = corrupt(clean, kind, int(severity), np.random.default_rng([3, i]))
            assert np.array_equal(seen, expected)
        assert np.array_equal(seen, clean) == (not sample.note)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(data.read(i)))), seen)
    assert data.labels == photos.labels
    other = corrupt_dataset(photos, ["gaussian_noise", "invert"], severity=4, seed=4, fraction=0.5)
    assert [s.note for s in other.samples] != [s.note for s in data.samples]


def test_each_sample_keeps_its_corruption_wherever_it_goes(photos: Dataset) -> None:
    data = corrupt_dataset(photos, "mix", seed=1)
    part = pickle.loads(pickle.dumps(data.take([7, 2]).take([1, 0])))
    assert np.array_equal(part.image(0), data.image(2))
    assert np.array_equal(part.image(1), data.image(7))
    assert np.array_equal(data.image(-1), data.image(11))


def test_two_corruptions_one_after_the_other(photos: Dataset) -> None:
    twice = corrupt_dataset(corrupt_dataset(photos, "invert"), "invert")
    assert np.array_equal(twice.image(4), photos.image(4))
    assert twice.samples[4].note == "invert 3, invert 3"


@pytest.mark.parametrize(
    ("kinds", "severity", "fraction"), [("fog", 3, 1.0), ([], 3, 1.0), ("jpeg", 9, 1.0), ("jpeg", 3, 1.5)]
)
def test_settings_that_are_refused(photos: Dataset, kinds: str, severity: int, fraction: float) -> None:
    with pytest.raises(SettingsError):
        corrupt_dataset(photos, kinds, severity, 0, fraction)
