"""Images of no class in a stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from taps.data import demo_dataset, load_dataset
from taps.data.outside import FOLDER, parse_outside, with_outside
from taps.data.sample import bundled_sample
from taps.errors import DataError, SettingsError
from taps.types import OUTSIDE


def test_other_images_make_up_the_share_and_no_class_of_both_comes(pictures: Path) -> None:
    inside = load_dataset(pictures)
    mixed = with_outside(inside, f"{bundled_sample()}:0.25")
    added = [sample for sample in mixed.samples if sample.label == OUTSIDE]
    assert len(added) == 8 == len(mixed) / 4
    assert mixed.samples[:24] == inside.samples
    assert mixed.classes == inside.classes
    for place in (0, 24, 31):
        sample = mixed.samples[place]
        source = inside if place == 0 else load_dataset(bundled_sample())
        key = sample.path.removeprefix(f"{FOLDER}/")
        index = [s.path for s in source.samples].index(key)
        assert np.array_equal(mixed.image(place), source.image(index))


def test_a_set_is_not_outside_itself(pictures: Path) -> None:
    with pytest.raises(DataError, match="has 0 images of other classes"):
        with_outside(load_dataset(pictures), str(pictures))


def test_too_few_images_say_which_share_there_are_enough_for(pictures: Path) -> None:
    with pytest.raises(DataError, match=r"smaller share: .*:0\.062"):
        with_outside(demo_dataset(), f"{pictures}:0.5")


@pytest.mark.parametrize("share", ["0", "1", "-0.5"])
def test_shares_lie_between_0_and_1(share: str) -> None:
    with pytest.raises(SettingsError, match="above 0 and below 1"):
        parse_outside(f"dtd.zip:{share}")
