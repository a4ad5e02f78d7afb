"""Algorithm 1: a threshold that follows the mean and the spread of the entropies."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from taps.active.decision import (
    NATS,
    Decision,
    check_count,
    check_number,
    check_rate,
    counters,
    is_usable,
    load_counters,
)


class Dynamic:
    """Algorithm 1: a threshold z standard deviations above the running mean, z larger while over budget.

    Samples are counted from 1 and the current entropy is part of the mean and the standard deviation (n−1) it
    is compared with. Before sample `warmup` the threshold is τ0.

    Args:
        rate: Query rate α. z is that of the top α, and of the top α/2 while over-querying.
        warmup: T_min, the first sample whose threshold is no longer τ0.
        tau0: τ0 in nats.
        switch_at: Share of questions so far from which on α/2 is used; α unless given.

    Example:
        >>> policy = Dynamic(rate=0.05, warmup=3, tau0=2.0)
        >>> [policy.decide(entropy).ask for entropy in (0.5, 2.1, 0.6, 0.4, float("nan"), 0.5)]
        [False, True, False, False, False, False]
        >>> policy.asked, policy.seen, policy.skipped
        (1, 5, 1)
    """

    def __init__(
        self,
        rate: float = 0.05,
        warmup: int = 30,
        tau0: float = NATS,
        switch_at: float | None = None,
    ) -> None:
        self.rate = check_rate(rate)
        self.warmup = check_count("warmup", warmup)
        self.tau0 = check_number("tau0", tau0)
        self.switch_at = check_rate(rate if switch_at is None else switch_at, "switch_at")
        self.z_selection = NormalDist().inv_cdf(1 - rate)
        self.z_high = NormalDist().inv_cdf(1 - rate / 2)
        self.asked: float = 0
        self.seen = self.skipped = 0
        self.mean = 0.0
        self._squares = 0.0  # sum of squared deviations from the mean, after Welford
        self._threshold = self.tau0

    @property
    def std(self) -> float:
        """Sample standard deviation of the entropies so far; 0 before there are two."""
        return math.sqrt(self._squares / (self.seen - 1)) if self.seen > 1 else 0.0

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one sample; with `allowed=False` it is counted as seen but cannot be asked about."""
        entropy = float(entropy)  # of numpy or torch it would leak into the saved state
        if not is_usable(entropy):
            self.skipped += 1
            return Decision(False, self._threshold)
        self._observe(entropy)
        self._threshold = self._current_threshold()
        ask = allowed and entropy > self._threshold
        self.asked += ask
        return Decision(ask, self._threshold)

    def _observe(self, entropy: float) -> None:
        self.seen += 1
        step = entropy - self.mean
        self.mean += step / self.seen
        self._squares += step * (entropy - self.mean)

    def _current_threshold(self) -> float:
        if self.seen < self.warmup:
            return self.tau0
        over_querying = self.asked / self.seen >= self.switch_at
        return self.mean + (self.z_high if over_querying else self.z_selection) * self.std

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while deciding, in plain numbers."""
        return {
            **counters("dynamic", self),
            "mean": self.mean,
            "squares": self._squares,
            "threshold": self._threshold,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken."""
        load_counters("dynamic", self, state)
        self.mean, self._squares = float(state["mean"]), float(state["squares"])
        self._threshold = float(state["threshold"])
