"""Acquisition: scores an image, the higher the more its label is wanted. Each rule costs little per image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taps.errors import StateError
from taps.saved import check_plain, whole
from taps.types import Array

SCORES = (
    "random",
    "entropy",
    "margin",
    "confidence",
    "leverage",
    "coverage",
    "density",
    "sensitivity",
    "vessal",
)
NOISE = 0.01  # EATTA's standard deviation, for each entry of a feature
ANYWAY = 1e6  # what is put on record as the score of an image that was drawn at random


class Acquisition:
    """Scores images by one rule: how much an answer for each is wanted.

    Args:
        rule: One of `SCORES`.
        seed: For chance. Draws follow from it and from the count of images, so there is no generator to save.
    """

    def __init__(self, rule: str, seed: int) -> None:
        self.rule, self.seed, self.images = rule, seed, 0

    def score(
        self,
        probs: Array,
        uncertainty: float,
        counts: Array,
        density: float,
        leverage: Callable[[], float],
        sensitivity: Callable[[], float],
    ) -> float:
        """How much the answer for this image is wanted.

        Args:
            probs: Prediction of the image.
            uncertainty: H_t.
            counts: Labels held of each class.
            density: How typical the image is: mean cosine to the images most like it.
            leverage: How new it is to the labels.
            sensitivity: By how much its prediction changes with a little noise on its feature.
        """
        rules: dict[str, Callable[[], float]] = {
            "random": lambda: float(np.random.default_rng([self.seed, self.images]).random()),
            "entropy": lambda: uncertainty,
            "margin": lambda: narrowness(probs),
            "confidence": lambda: 1.0 - float(probs.max()),
            "leverage": leverage,
            "coverage": lambda: scarcity(probs, counts),
            "density": lambda: max(density, 0.0) * narrowness(probs),
            "sensitivity": sensitivity,
            "vessal": lambda: gradient_leverage(probs, leverage()),
        }
        score = rules[self.rule]()
        self.images += 1
        return score

    def noise(self, dim: int) -> Array:
        """Noise for the present image's feature, to measure how sensitive its prediction is [d]."""
        return NOISE * np.random.default_rng([self.seed, self.images, 2]).standard_normal(dim)

    def values(self) -> dict[str, Any]:
        """What must be saved."""
        return {"rule": self.rule, "seed": self.seed, "images": self.images}

    def restore(self, values: dict[str, Any]) -> None:
        """Go on from what was saved, by the same rule and with the seed it was started with."""
        check_plain(values, {"seed": whole(), "images": whole()}, "acquisition")
        if values["rule"] != self.rule:
            raise StateError(f"The saved learner asks by {values['rule']!r}, this one by {self.rule!r}.")
        self.seed, self.images = int(values["seed"]), int(values["images"])


def narrowness(probs: Array) -> float:
    """1 − margin between the two likeliest classes: 1 where they are equally likely.

    >>> round(narrowness(np.array([0.1, 0.6, 0.3])), 4)
    0.7
    """
    second, first = np.partition(probs, -2)[-2:]
    return float(1.0 - (first - second))


def novelty(features: Array, known: Array) -> Array:
    """1 − highest cosine of each image [N, d] to the known ones [M, d]; 1 where none is known [N].

    Features have length 1.

    >>> novelty(np.eye(2), np.array([[0.6, 0.8]])).round(2).tolist()
    [0.4, 0.2]
    """
    if not len(known) or not len(features):
        return np.ones(len(features))
    likeness: Array = np.clip(features @ known.T, 0.0, 1.0).max(axis=1)
    return 1.0 - likeness


def scarcity(probs: Array, counts: Array) -> float:
    """How few labels the likely classes have: the expected 1 / (1 + labels of its class).

    >>> scarcity(np.array([0.5, 0.5]), np.array([0.0, 3.0]))
    0.625
    """
    return float((probs / (1.0 + counts)).sum())


def gradient_leverage(probs: Array, leverage: float) -> float:
    """How new the gradient of the likeliest class is to the labels: VeSSAL's rule.

    The gradient of a linear head is (p − e_ŷ) ⊗ x; with the labelled images' Gram matrix alike for each
    class, g'A⁻¹g is |p − e_ŷ|² times the leverage of x. The policy turns it into questions at a rate.

    >>> round(gradient_leverage(np.array([0.75, 0.25]), leverage=2.0), 4)
    0.25
    """
    off = probs.copy()
    off[probs.argmax()] -= 1.0
    return float(off @ off) * leverage
