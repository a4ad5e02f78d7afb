"""Algorithm 1 of the paper: a threshold that follows the mean and the spread of the entropies."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Self

from taps.asking.base import (
    NATS,
    Decision,
    Policy,
    PolicySettings,
    check_count,
    check_number,
    check_rate,
    policy,
)


@policy("dynamic")
class Dynamic(Policy):
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

    saved = ("mean", "squares", "threshold")

    def __init__(
        self, rate: float = 0.05, warmup: int = 30, tau0: float = NATS, switch_at: float | None = None
    ) -> None:
        super().__init__(check_number("tau0", tau0))
        self.rate, self.tau0 = check_rate(rate), self.threshold
        self.warmup = check_count("warmup", warmup)
        self.switch_at = check_rate(rate if switch_at is None else switch_at, "switch_at")
        self.z_selection = NormalDist().inv_cdf(1 - rate)
        self.z_high = NormalDist().inv_cdf(1 - rate / 2)
        self.mean = 0.0
        self.squares = 0.0  # sum of squared deviations from the mean, after Welford

    @classmethod
    def make(cls, settings: PolicySettings) -> Self:
        return cls(settings.rate, settings.warmup, settings.tau0, settings.switch_at)

    @property
    def std(self) -> float:
        """Sample standard deviation of the entropies so far; 0 before there are two."""
        return math.sqrt(self.squares / (self.seen - 1)) if self.seen > 1 else 0.0

    def judge(self, entropy: float) -> Decision:
        step = entropy - self.mean
        self.mean += step / self.seen
        self.squares += step * (entropy - self.mean)
        if self.seen < self.warmup:
            self.threshold = self.tau0
        else:
            over_querying = self.asked / self.seen >= self.switch_at
            self.threshold = self.mean + (self.z_high if over_querying else self.z_selection) * self.std
        return Decision(entropy > self.threshold, self.threshold)
