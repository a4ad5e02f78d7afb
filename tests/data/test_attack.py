"""Adversarial steps, against a gradient by differences in double precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from taps.clip import Clip
from taps.data import load_dataset
from taps.data.attack import attack, attack_dataset, parse_attack
from taps.errors import SettingsError
from taps.prompts.classify import text_classifier
from taps.types import PixelArray

CLASSES = ("ant", "bee", "cat")
TEMPLATE = "a photo of a {}."


def test_a_step_goes_where_the_loss_grows(tiny64: Clip, picture: Callable[[int], PixelArray]) -> None:
    size = tiny64.config.framing["size"]
    rng = torch.Generator().manual_seed(3)
    view = torch.randint(20, 230, (1, 3, size, size), generator=rng).double()
    classifier = text_classifier(tiny64, CLASSES, TEMPLATE)
    text = classifier.text(None).detach()

    def loss(pixels: torch.Tensor) -> float:
        features = classifier.image(tiny64.preprocess(pixels), None)
        return float(F.cross_entropy(classifier.logits(features, text), torch.tensor([1])))

    moved = attack(view, 1, classifier, text, radius=1.0, steps=1)
    for place in ((0, 0, 3, 5), (0, 1, 7, 2), (0, 2, 1, 1), (0, 1, 4, 4)):
        step = torch.zeros_like(view)
        step[place] = 1e-3
        slope = loss(view + step) - loss(view - step)
        assert float(moved[place] - view[place]) == pytest.approx(0.25 * np.sign(slope))
    far = attack(view, 1, classifier, text, radius=2.0)
    assert float((far - view).abs().max()) <= 2.0
    assert loss(far) > loss(moved) > loss(view)


def test_an_attacked_data_set(tiny: Clip, pictures: Path) -> None:
    data = load_dataset(pictures)
    attacked = attack_dataset(data, tiny, "pgd:1/255", TEMPLATE)
    size = tiny.config.framing["size"]
    classifier = text_classifier(tiny, data.classes, TEMPLATE)
    text = classifier.text(None).detach()

    def surprise(pixels: PixelArray, label: int) -> float:
        from taps.images.views import make_views, sample_generator

        view = make_views(pixels, views=1, **tiny.config.framing, generator=sample_generator(0, 0))
        with torch.no_grad():
            logits = classifier.logits(classifier.image(tiny.preprocess(view), None), text)
        return float(F.cross_entropy(logits, torch.tensor([label])))

    for index in (0, 9, 20):
        pixels, label = attacked.image(index), data.samples[index].label
        assert label is not None
        assert pixels.shape == (size, size, 3)
        assert surprise(pixels, label) > surprise(data.image(index), label)
        assert np.array_equal(pixels, attacked.image(index))


@pytest.mark.parametrize("text", ["fgsm:1/255", "pgd:0", "pgd:1/0", "pgd:x", "pgd:-1/255", "pgd:2"])
def test_unknown_attacks_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="pgd:1/255"):
        parse_attack(text)
