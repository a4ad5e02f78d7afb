"""A running quantile of the entropies as threshold."""

from __future__ import annotations

import math
from typing import Any

from taps.active.decision import (
    NATS,
    Counting,
    Decision,
    check_count,
    check_number,
    check_rate,
    check_window,
)
from taps.active.quantiles import QuantileSketch, SlidingWindow


class Quantile(Counting):
    """The running (1−α) quantile of the entropies as threshold: no shape of theirs is assumed.

    The current entropy is among those the quantile is taken of, as in Algorithm 1. Of n entropies the
    quantile is the one with ⌊α·n⌋ above it. Where an entropy *equals* it, the sample is asked about only
    while fewer than α of all samples have been: so entropies that take few values, or all the same one, are
    asked about at the rate too.

    Args:
        rate: Query rate α.
        warmup: The first sample whose threshold is no longer τ0.
        tau0: τ0 in nats.
        window: Take the quantile of the last `window` entropies only, which follows a drift; otherwise of all
            of them, exact for the first 2,000 and after that off by at most 0.05 % of their number in rank.

    Example:
        >>> policy = Quantile(rate=0.25, warmup=1)
        >>> sum(policy.decide(entropy).ask for entropy in [0.7] * 100)
        25
    """

    kind = "quantile"

    def __init__(
        self, rate: float = 0.05, warmup: int = 30, tau0: float = NATS, window: int | None = None
    ) -> None:
        super().__init__(check_number("tau0", tau0))
        self.rate, self.tau0 = check_rate(rate), self.threshold
        self.warmup = check_count("warmup", warmup)
        self._quantiles = QuantileSketch() if window is None else SlidingWindow(check_window(window, rate))

    def judge(self, entropy: float) -> Decision:
        self._quantiles.add(entropy)
        if self.seen < self.warmup:
            self.threshold, tied = self.tau0, False
        else:
            held = self._quantiles.count
            self.threshold = self._quantiles.at_rank(held - math.floor(self.rate * held + 1e-9))
            tied = entropy == self.threshold and self.asked < self.rate * self.seen
        return Decision(entropy > self.threshold or tied, self.threshold)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "quantiles": self._quantiles.state_dict(),
            "threshold": self.threshold,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._quantiles.load_state_dict(state["quantiles"])
        self.threshold = float(state["threshold"])
