"""A query policy for any score: asks about the highest scores at an exact rate."""

from __future__ import annotations

import math
from typing import Any

from taps.active.decision import Counting, Decision, check_rate, check_window
from taps.active.quantiles import SlidingWindow

MOST_OWED = 2  # questions that may be behind schedule before one is asked at any score


class Paced(Counting):
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

    kind = "paced"

    def __init__(self, rate: float = 0.05, window: int = 200, horizon: float | None = None) -> None:
        super().__init__(math.inf)
        self.rate = check_rate(rate)
        self.horizon = 1.0 / rate if horizon is None else float(horizon)
        self._window = SlidingWindow(check_window(window, rate))

    def judge(self, entropy: float) -> Decision:
        self._window.add(entropy)
        due = self.rate * self.seen
        if self.asked >= math.ceil(due - 1e-9):
            return Decision(False, math.inf)
        share = min(1.0, max(0.0, self.rate + (due - self.asked - 0.5) / self.horizon))
        held = self._window.count
        above = math.floor(share * held + 1e-9)
        overdue = due - self.asked >= MOST_OWED
        self.threshold = -math.inf if overdue or above >= held else self._window.at_rank(held - above)
        return Decision(entropy > self.threshold, self.threshold)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "window": self._window.state_dict(),
            "threshold": self.threshold if math.isfinite(self.threshold) else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._window.load_state_dict(state["window"])
        self.threshold = math.inf if state["threshold"] is None else float(state["threshold"])
