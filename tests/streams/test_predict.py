"""Predictions for many images, where nothing is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from taps import Learner
from taps.model.clip import Clip
from taps.model.clip.model import initialise, unfilled
from taps.streams.predict import framed

SHAPES = [(300, 211), (32, 32), (9, 140), (31, 33), (1, 1)]


@pytest.mark.parametrize("resize", ["shortest", "squash"])
def test_an_image_framed_beforehand_is_predicted_to_the_same_bit(tiny: Clip, resize: str) -> None:
    clip = initialise(
        unfilled(replace(tiny.config, resize=resize), tokenizer=tiny.tokenizer), torch.Generator()
    )
    rng, learner = np.random.default_rng(0), Learner(clip, ["ant", "bee", "cat"], "zero_shot")
    images = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in SHAPES]
    cut = [framed(learner, image) for image in images]
    assert {image.shape for image in cut} == {(32, 32, 3)}
    first, second = (learner.predict_many(each, update=False) for each in (cut, images))
    assert all(np.array_equal(one.probs, other.probs) for one, other in zip(first, second, strict=True))


def test_where_more_views_are_looked_at_the_whole_image_stays(tiny: Clip) -> None:
    image = np.zeros((50, 60, 3), dtype=np.uint8)
    assert framed(Learner(tiny, ["ant", "bee"], "view_ensemble", views=2), image) is image
