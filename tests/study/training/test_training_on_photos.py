"""Training on a few photos of each class raises accuracy on other photos, beyond what chance can do."""

import math
from pathlib import Path

import pytest

from taps import Learner, load_clip
from taps.data import few_shot, load_dataset
from taps.study.training.recipe import recipe_for
from taps.study.training.train import train_prompts

PHOTOS = Path(__file__).parents[2] / "assets" / "caltech101-even.zip"
SHOTS = 12


def chance_of(gained: int, lost: int) -> float:
    """McNemar's exact test: how likely so many or more would be gained if either were as likely."""
    changed = gained + lost
    return sum(math.comb(changed, k) for k in range(gained, changed + 1)) / 2**changed


@pytest.fixture(scope="module")
def photos():
    return load_dataset(PHOTOS)


@pytest.fixture(scope="module")
def pocket():
    return load_clip("pocket", device="cpu")


@pytest.fixture(scope="module")
def shots(photos):
    return few_shot(photos, SHOTS, seed=0)


def right(clip, photos, shots, method, **settings):
    learner = Learner(clip, photos.classes, method, **settings)
    return {
        index
        for index in sorted(set(range(len(photos))) - set(shots))
        if learner.predict_one(photos.image(index)).index == photos.samples[index].label
    }


@pytest.mark.slow
@pytest.mark.parametrize(("family", "changes"), [("coop", {"epochs": 20, "lr": 0.02}), ("maple", {})])
def test_training_on_photos_raises_accuracy_on_other_photos(pocket, photos, shots, family, changes):
    before = right(pocket, photos, shots, "zero_shot")
    prompts = train_prompts(pocket, photos, family, recipe_for(family, **changes), indices=shots)
    after = right(pocket, photos, shots, family, prompts=prompts)
    assert chance_of(len(after - before), len(before - after)) < 1e-4
