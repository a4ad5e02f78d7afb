"""A running quantile of the entropies as threshold."""

from __future__ import annotations

import math
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
from taps.active.quantiles import QuantileSketch, SlidingWindow
from taps.errors import SettingsError


class Quantile:
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

    def __init__(
        self,
        rate: float = 0.05,
        warmup: int = 30,
        tau0: float = NATS,
        window: int | None = None,
    ) -> None:
        self.rate = check_rate(rate)
        self.warmup = check_count("warmup", warmup)
        self.tau0 = check_number("tau0", tau0)
        if window is not None and check_count("window", window) * rate < 1:
            raise SettingsError(
                f"window={window} is too short to have a top {rate:g}; use at least {math.ceil(1 / rate)}."
            )
        self.asked: float = 0
        self.seen = self.skipped = 0
        self._quantiles = QuantileSketch() if window is None else SlidingWindow(window)
        self._threshold = self.tau0

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one sample; with `allowed=False` it is counted as seen but cannot be asked about."""
        entropy = float(entropy)  # of numpy or torch it would leak into the saved state
        if not is_usable(entropy):
            self.skipped += 1
            return Decision(False, self._threshold)
        self.seen += 1
        self._quantiles.add(entropy)
        if self.seen < self.warmup:
            self._threshold, tied = self.tau0, False
        else:
            held = self._quantiles.count
            self._threshold = self._quantiles.at_rank(held - math.floor(self.rate * held + 1e-9))
            tied = entropy == self._threshold and self.asked < self.rate * self.seen
        ask = allowed and (entropy > self._threshold or tied)
        self.asked += ask
        return Decision(ask, self._threshold)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while deciding, in plain numbers."""
        return {
            **counters("quantile", self),
            "quantiles": self._quantiles.state_dict(),
            "threshold": self._threshold,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken."""
        load_counters("quantile", self, state)
        self._quantiles.load_state_dict(state["quantiles"])
        self._threshold = float(state["threshold"])
