"""Scores images by one rule: how much an answer for each is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.active.scores import Recent, entropy, narrowness, scarcity
from taps.errors import StateError

Array = NDArray[np.float64]
SCORES = ("random", "entropy", "margin", "leverage", "coverage", "density")


class Chooser:
    """Scores images by one rule: how much an answer for each is wanted.

    Args:
        rule: One of `SCORES`.
        dim: Length of a feature.
        seed: For chance. Draws follow from it and from the count of images, so there is no generator to save.
    """

    def __init__(self, rule: str, dim: int, seed: int) -> None:
        self.rule, self.seed, self.images = rule, seed, 0
        self.recent = Recent(dim) if rule == "density" else None

    def score(
        self,
        feature: Array,
        probs: Array,
        uncertainty: float,
        counts: Array,
        leverage: Callable[[Array], float],
    ) -> float:
        """How much the answer for this image is wanted.

        Args:
            feature: Of the image.
            probs: Its prediction.
            uncertainty: H_t.
            counts: Labels held of each class.
            leverage: How new a feature is to the labels.
        """
        rules: dict[str, Callable[[], float]] = {
            "random": lambda: float(np.random.default_rng([self.seed, self.images]).random()),
            "entropy": lambda: uncertainty,
            "margin": lambda: narrowness(probs),
            "leverage": lambda: leverage(feature),
            "coverage": lambda: scarcity(probs, counts),
            "density": lambda: self._typical(feature) * entropy(probs),
        }
        score = rules[self.rule]()
        self.images += 1
        return score

    def _typical(self, feature: Array) -> float:
        assert self.recent is not None
        density = max(self.recent.density(feature), 0.0)
        self.recent.add(feature)
        return density

    def arrays(self) -> dict[str, Array]:
        """What must be saved: arrays."""
        return {} if self.recent is None else {"chooser.recent": self.recent.features}

    def values(self) -> dict[str, Any]:
        """What must be saved: plain values."""
        remembered = 0 if self.recent is None else self.recent.seen
        return {"rule": self.rule, "seed": self.seed, "images": self.images, "remembered": remembered}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        """Go on from what was saved, by the same rule and with the seed it was begun with."""
        if values["rule"] != self.rule:
            raise StateError(f"The saved learner asks by {values['rule']!r}, this one by {self.rule!r}.")
        self.seed, self.images = int(values["seed"]), int(values["images"])
        if self.recent is not None:
            self.recent.features = arrays["chooser.recent"].copy()
            self.recent.seen = int(values["remembered"])
