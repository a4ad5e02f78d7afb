"""The sample that comes with the package."""

from __future__ import annotations

from collections import Counter

from taps.data import demo_dataset
from taps.data.sample import CORRUPTIONS, bundled_sample


def test_the_sample_is_a_stream_worth_showing() -> None:
    data = demo_dataset()
    counts = Counter(data.labels)
    assert len(data) == 360
    assert len(data.classes) == len(counts) >= 40
    assert min(counts.values()) >= 4
    kinds = Counter(sample.note.split(" ")[0] for sample in data.samples)
    assert kinds.pop("") == 240
    assert set(kinds) == set(CORRUPTIONS)
    assert min(kinds.values()) > 20
    assert demo_dataset() == data


def test_every_image_decodes_and_is_small() -> None:
    data = demo_dataset()
    assert {min(data.image(i).shape[:2]) for i in range(len(data))} <= set(range(40, 97))
    assert bundled_sample().stat().st_size < 2_000_000


def test_its_makers_are_named() -> None:
    text = (bundled_sample().parent / "ATTRIBUTION.md").read_text()
    for word in ("Caltech 101", "Li", "Andreeto", "Ranzato", "Perona", "Attribution 4.0", "resized"):
        assert word in text
