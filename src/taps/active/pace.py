"""A query policy for any score: asks about the highest scores at an exact rate."""

from __future__ import annotations

import math
from typing import Any

from taps.active.decision import Decision, check_count, check_rate, counters, is_usable, load_counters
from taps.active.quantiles import SlidingWindow
from taps.errors import SettingsError

MOST_OWED = 2  # questions that may be behind schedule before one is asked at any score


class Paced:
    """Asks about the images of highest score, at an exact rate.

    An image is asked about where its score is among the top q of the last `window`, and q follows what is
    left: about α where the budget is on schedule, more where questions are owed. After t images never more
    than ⌈α·t⌉ questions have been put and never fewer than α·t − 2: what is owed then is asked at any score.

    Args:
        rate: α, share of the images.
        window: How many of the last scores an image is compared with; scores drift as the head learns.
        horizon: Over how many images a debt is paid; 1/α unless given.

    Example:
        >>> policy = Paced(rate=0.1)
        >>> import random; chance = random.Random(0)
        >>> 98 <= sum(policy.decide(chance.random()).ask for _ in range(1000)) <= 100
        True
    """

    def __init__(self, rate: float = 0.05, window: int = 200, horizon: float | None = None) -> None:
        self.rate = check_rate(rate)
        if check_count("window", window) * rate < 1:
            raise SettingsError(
                f"window={window} is too short to have a top {rate:g}; use at least {math.ceil(1 / rate)}."
            )
        self.horizon = 1.0 / rate if horizon is None else float(horizon)
        self.asked: float = 0
        self.seen = self.skipped = 0
        self._window = SlidingWindow(window)
        self._threshold = math.inf

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one image by its score; with `allowed=False` it is seen but cannot be asked about."""
        score = float(entropy)
        if not is_usable(score):
            self.skipped += 1
            return Decision(False, self._threshold)
        self.seen += 1
        self._window.add(score)
        due = self.rate * self.seen
        if self.asked >= math.ceil(due - 1e-9):
            return Decision(False, math.inf)
        share = min(1.0, max(0.0, self.rate + (due - self.asked - 0.5) / self.horizon))
        held = self._window.count
        above = math.floor(share * held + 1e-9)
        overdue = due - self.asked >= MOST_OWED
        self._threshold = -math.inf if overdue or above >= held else self._window.at_rank(held - above)
        ask = allowed and score > self._threshold
        self.asked += ask
        return Decision(ask, self._threshold)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while deciding, in plain numbers."""
        return {
            **counters("paced", self),
            "window": self._window.state_dict(),
            "threshold": self._threshold if math.isfinite(self._threshold) else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken."""
        load_counters("paced", self, state)
        self._window.load_state_dict(state["window"])
        self._threshold = math.inf if state["threshold"] is None else float(state["threshold"])
