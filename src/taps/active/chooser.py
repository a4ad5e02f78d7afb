"""Scores images by one rule: how much an answer for each is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.active.scores import narrowness, scarcity
from taps.errors import StateError

Array = NDArray[np.float64]
SCORES = ("random", "entropy", "margin", "leverage", "coverage", "density")
ANYWAY = 1e6  # a score above all others


class Chooser:
    """Scores images by one rule: how much an answer for each is wanted.

    Args:
        rule: One of `SCORES`.
        seed: For chance. Draws follow from it and from the count of images, so there is no generator to save.
        explore: Share of the images that are wanted whatever the rule says, so that a part of the answers is
            a fair sample of the stream.
    """

    def __init__(self, rule: str, seed: int, explore: float = 0.0) -> None:
        self.rule, self.seed, self.explore, self.images = rule, seed, explore, 0

    def score(
        self,
        probs: Array,
        uncertainty: float,
        counts: Array,
        density: float,
        leverage: Callable[[], float],
    ) -> float:
        """How much the answer for this image is wanted.

        Args:
            probs: Prediction of the image.
            uncertainty: H_t.
            counts: Labels held of each class.
            density: How typical the image is: mean cosine to the images most like it.
            leverage: How new it is to the labels.
        """
        rules: dict[str, Callable[[], float]] = {
            "random": lambda: float(np.random.default_rng([self.seed, self.images]).random()),
            "entropy": lambda: uncertainty,
            "margin": lambda: narrowness(probs),
            "leverage": leverage,
            "coverage": lambda: scarcity(probs, counts),
            "density": lambda: max(density, 0.0) * narrowness(probs),
        }
        anyway = np.random.default_rng([self.seed, self.images, 1]).random() < self.explore
        score = ANYWAY if anyway else rules[self.rule]()
        self.images += 1
        return score

    def values(self) -> dict[str, Any]:
        """What must be saved."""
        return {"rule": self.rule, "seed": self.seed, "images": self.images}

    def restore(self, values: dict[str, Any]) -> None:
        """Go on from what was saved, by the same rule and with the seed it was begun with."""
        if values["rule"] != self.rule:
            raise StateError(f"The saved learner asks by {values['rule']!r}, this one by {self.rule!r}.")
        self.seed, self.images = int(values["seed"]), int(values["images"])
