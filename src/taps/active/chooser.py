"""Scores images by one rule, or draws the rule of each question by weights learned from the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.active.quantiles import SlidingWindow
from taps.active.scores import Recent, entropy, narrowness, scarcity
from taps.errors import StateError

Array = NDArray[np.float64]
RULES = ("random", "entropy", "margin", "leverage", "coverage", "density")
SCORES = (*RULES, "learned")
WINDOW = 200  # images among which a score is ranked
STEP, FLOOR = 0.3, 0.2  # of Exp3: pay of a nat, share of questions spread evenly


class Chooser:
    """Scores images by one rule, or lets several put questions by turns.

    With "learned", each question is put by one of `RULES`, drawn by weight. A rule is paid when the *next*
    label comes, by what the head then gained over zero-shot, compared with what it usually gains: a label
    that helps to predict the next one was well chosen. Weights grow exponentially with the pay (Exp3), and a
    fifth of the questions is spread evenly. With the few labels of a stream they stay close to even: safe.

    Args:
        rule: One of `SCORES`.
        dim: Length of a feature.
        seed: For chance. Draws follow from it and from counts, so there is no generator to save.
    """

    def __init__(self, rule: str, dim: int, seed: int) -> None:
        self.rule, self.seed = rule, seed
        self.used = RULES if rule == "learned" else (rule,)
        self.recent = Recent(dim) if "density" in self.used else None
        self.windows = {name: SlidingWindow(WINDOW) for name in self.used} if rule == "learned" else {}
        self.images = self.questions = 0
        self.pay: Array = np.zeros(len(self.used))
        self.usual = 0.0
        self._last: int | None = None

    def weights(self) -> Array:
        """How often each of the rules in use puts a question."""
        raised = np.exp(self.pay - self.pay.max())
        shares: Array = (1 - FLOOR) * raised / raised.sum() + FLOOR / len(self.used)
        return shares

    @property
    def current(self) -> int:
        """Place of the rule that puts the next question."""
        if len(self.used) == 1:
            return 0
        at = np.random.default_rng([self.seed, self.questions, 1]).random()
        return min(int(np.searchsorted(np.cumsum(self.weights()), at)), len(self.used) - 1)

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
        scores = {name: rules[name]() for name in self.used}
        self.images += 1
        name = self.used[self.current]
        if not self.windows:
            return scores[name]
        # Rules have scales of their own; ranks among the last images can be compared.
        for each, window in self.windows.items():
            window.add(scores[each] if np.isfinite(scores[each]) else 0.0)
        return _below(self.windows[name], scores[name]) / self.windows[name].count

    def learned(self, gain: float) -> None:
        """Hear what the head gained over zero-shot on a label, before learning it."""
        if len(self.used) == 1:
            return
        if self._last is not None:  # importance-weighted, and clipped: one odd label must not decide
            surplus = float(np.clip(gain - self.usual, -1.0, 1.0))
            self.pay[self._last] += STEP * surplus / (len(self.used) * self.weights()[self._last])
        self._last = self.current
        self.questions += 1
        self.usual += (gain - self.usual) / self.questions

    def path(self) -> Array:
        """What labels have changed here, for `go_back`."""
        last = -1 if self._last is None else self._last
        return np.array([self.questions, self.usual, last, *self.pay])

    def go_back(self, path: Array) -> None:
        """Be as when `path` was taken; images seen since stay seen."""
        self.questions, self.usual, self.pay = int(path[0]), float(path[1]), path[3:].copy()
        self._last = None if path[2] < 0 else int(path[2])

    def _typical(self, feature: Array) -> float:
        assert self.recent is not None
        density = max(self.recent.density(feature), 0.0)
        self.recent.add(feature)
        return density

    def summary(self) -> dict[str, Any]:
        """How often each rule asks, where there are several."""
        if len(self.used) == 1:
            return {}
        return {"asks_by": {n: round(float(w), 3) for n, w in zip(self.used, self.weights(), strict=True)}}

    def arrays(self) -> dict[str, Array]:
        """What must be saved: arrays."""
        arrays = {"chooser.pay": self.pay}
        return arrays if self.recent is None else arrays | {"chooser.recent": self.recent.features}

    def values(self) -> dict[str, Any]:
        """What must be saved: plain values."""
        return {
            "rule": self.rule,
            "images": self.images,
            "questions": self.questions,
            "usual": self.usual,
            "last": self._last,
            "remembered": 0 if self.recent is None else self.recent.seen,
            "windows": {name: window.state_dict() for name, window in self.windows.items()},
        }

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        """Go on from what was saved, by the same rule."""
        if values["rule"] != self.rule:
            raise StateError(f"The saved learner asks by {values['rule']!r}, this one by {self.rule!r}.")
        self.pay = arrays["chooser.pay"].copy()
        self.images, self.questions = int(values["images"]), int(values["questions"])
        self.usual, self._last = float(values["usual"]), values["last"]
        if self.recent is not None:
            self.recent.features = arrays["chooser.recent"].copy()
            self.recent.seen = int(values["remembered"])
        for name, window in self.windows.items():
            window.load_state_dict(values["windows"][name])


def _below(window: SlidingWindow, value: float) -> int:
    """How many of the window's values are lower."""
    low, high = 0, window.count
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if window.at_rank(middle + 1) < value else (low, middle)
    return low
