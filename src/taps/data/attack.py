"""Adversarial images: each is attacked with its true class against the zero-shot model.

As in the test of R-TPT: projected gradient descent (Madry et al., 2018) on view 0 of the image; the views of
every method are then made from the attacked image.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.clip import Clip
from taps.data.dataset import Dataset
from taps.errors import SettingsError
from taps.images.views import make_views, sample_generator
from taps.prompts.classifier import Classifier
from taps.prompts.classify import text_classifier
from taps.types import OUTSIDE, PixelArray

STEPS = 7


def parse_attack(text: str) -> float:
    """The radius of an attack, in levels of 8 bits.

    >>> parse_attack("pgd:1/255"), parse_attack("pgd")
    (1.0, 1.0)
    """
    kind, _, number = text.partition(":")
    try:
        radius = float(255 * Fraction(number or "1/255"))
    except (ValueError, ZeroDivisionError):
        radius = 0.0
    if kind != "pgd" or not 0.0 < radius <= 255.0:
        raise SettingsError(f"--attack {text!r} is unknown; write pgd:1/255, with the radius of your choice.")
    return radius


def attack_dataset(dataset: Dataset, clip: Clip, text: str, template: str) -> Dataset:
    """The data set under the attack `text`; pixels are changed when they are read."""
    classifier = text_classifier(clip, dataset.classes, template)
    with torch.no_grad():
        features = classifier.text(None)
    pixels = partial(_attacked, classifier, features, dataset.labels, parse_attack(text))
    return replace(dataset, transforms=(*dataset.transforms, pixels))


def _attacked(
    classifier: Classifier,
    text: Tensor,
    labels: list[int | None],
    radius: float,
    pixels: PixelArray,
    index: int,
) -> PixelArray:
    """View 0 of sample `index` under attack; images without a class are not attacked."""
    label = labels[index]
    if label is None or label == OUTSIDE:
        return pixels
    clip = classifier.clip
    view = make_views(
        pixels, views=1, **clip.config.framing, generator=sample_generator(0, 0), device=clip.device
    )
    moved = attack(view.float(), label, classifier, text, radius)
    return moved.round().to(torch.uint8)[0].permute(1, 2, 0).contiguous().cpu().numpy()


def attack(
    view: Tensor, label: int, classifier: Classifier, text: Tensor, radius: float, steps: int = STEPS
) -> Tensor:
    """Pixels (0..255) moved by at most `radius` so that the cross-entropy of their class grows.

    The first step starts at the image itself; each is a quarter of the radius along the gradient's sign.
    """
    moved, target = view, torch.tensor([label], device=view.device)
    for _ in range(steps):
        with torch.enable_grad():
            leaf = moved.detach().requires_grad_()
            feature = classifier.image(classifier.clip.preprocess(leaf), None)
            loss = F.cross_entropy(classifier.logits(feature, text), target)
            (gradient,) = torch.autograd.grad(loss, leaf)
        moved = view + (moved + radius / 4 * gradient.sign() - view).clamp(-radius, radius)
        moved = moved.clamp(0, 255)
    return moved
