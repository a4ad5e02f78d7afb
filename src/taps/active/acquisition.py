"""Scores images by one rule: how much an answer for each is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.active.clusters import Clusters
from taps.active.scores import belief_drift, gradient_leverage, narrowness, scarcity
from taps.errors import StateError

Array = NDArray[np.float64]
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
    "drift",
    "clusters",
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
        self.clusters = Clusters()  # of the images, where the rule has them

    def score(
        self,
        probs: Array,
        uncertainty: float,
        counts: Array,
        density: float,
        leverage: Callable[[], float],
        sensitivity: Callable[[], float],
        before: Callable[[], Array],
        joined: Callable[[], Array],
    ) -> float:
        """How much the answer for this image is wanted.

        Args:
            probs: Prediction of the image.
            uncertainty: H_t.
            counts: Labels held of each class.
            density: How typical the image is: mean cosine to the images most like it.
            leverage: How new it is to the labels.
            sensitivity: By how much its prediction changes with a little noise on its feature.
            before: Its prediction without any answer.
            joined: What it is clustered by (`taps.active.clusters`).
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
            "drift": lambda: belief_drift(probs, before()),
            "clusters": lambda: self.clusters.score(joined(), len(probs)),
        }
        score = rules[self.rule]()
        self.images += 1
        return score

    def answered(self, feature: Callable[[], Array], times: int = 1) -> None:
        """Take note of an answer for an image that was scored, or with −1 of one that is taken back."""
        if self.rule == "clusters":
            self.clusters.answer(feature(), times)

    def noise(self, dim: int) -> Array:
        """What is added to the present image's feature to see how sensitive its prediction is [d]."""
        return NOISE * np.random.default_rng([self.seed, self.images, 2]).standard_normal(dim)

    def values(self) -> dict[str, Any]:
        """What must be saved."""
        return {"rule": self.rule, "seed": self.seed, "images": self.images}

    def restore(self, values: dict[str, Any]) -> None:
        """Go on from what was saved, by the same rule and with the seed it was started with."""
        if values["rule"] != self.rule:
            raise StateError(f"The saved learner asks by {values['rule']!r}, this one by {self.rule!r}.")
        self.seed, self.images = int(values["seed"]), int(values["images"])
