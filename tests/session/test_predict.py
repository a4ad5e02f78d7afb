"""Predictions for many images, where nothing is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from taps import Learner
from taps.clip import Clip
from taps.clip.model import initialise, unfilled
from taps.session.predict import Predictor, zero_shot

SHAPES = [(300, 211), (32, 32), (9, 140), (31, 33), (1, 1)]


@pytest.mark.parametrize("resize", ["shortest", "squash"])
def test_an_image_framed_beforehand_is_predicted_to_the_same_bit(tiny: Clip, resize: str) -> None:
    clip = initialise(
        unfilled(replace(tiny.config, resize=resize), tokenizer=tiny.tokenizer), torch.Generator()
    )
    rng, predictor = np.random.default_rng(0), zero_shot(clip, ["ant", "bee", "cat"])
    images = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in SHAPES]
    framed = [predictor.framed(image) for image in images]
    assert {image.shape for image in framed} == {(32, 32, 3)}
    assert np.array_equal(predictor(framed), predictor(images))


def test_where_more_views_are_looked_at_the_whole_image_stays(tiny: Clip) -> None:
    image = np.zeros((50, 60, 3), dtype=np.uint8)
    assert Predictor(Learner(tiny, ["ant", "bee"], "view_ensemble", views=2)).framed(image) is image
