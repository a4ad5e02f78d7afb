"""A query policy for any score: asks about the highest scores, at an even rate or most of them early."""

from __future__ import annotations

import math
from typing import Any

from taps.active.decision import Counting, Decision, check_rate, check_window
from taps.active.quantiles import SlidingWindow

MOST_OWED = 2  # questions that may be behind schedule before one is asked at any score
# Of "front", chosen on development streams (docs/results/pace.md):
EARLY = 0.4  # share of the images asked about early
SPREAD = 0.2  # share of the budget that stays spread over the stream
FIRST = 3  # questions put early whatever is answered
GAIN = 1.4  # those that an answer of another class than the last one allows


class Paced(Counting):
    """Asks about the images of highest score, as many as its pace says.

    An image is asked about where its score is among the top q of the last `window`, and q follows what is
    due: about α where the budget is on schedule, more where questions are owed. What is due follows the pace:

    - "even": α·t after t images. Never more than ⌈α·t⌉ questions have been put and never fewer than α·t − 2
      (3 where some are put at random): what is owed then is asked at any score.
    - a number a: the budget times (t/N)^a, where N images are expected.
    - "front": two images of five, up to four fifths of the budget, while answers change from class to class:
      3 questions, and 1.4 for every answer of another class than the one before. Otherwise what is left is
      spread evenly over the images left. So a stream that mixes its classes is asked about at once; one that
      shows them one after the other is asked about all along, a little more where a new one begins. While
      questions wait for their answers they allow no others.

    After the images expected, or where their number is not known, the pace is even. One question of what is
    due is left to chance wherever some are put at random, so that every image can be drawn.

    Args:
        rate: α, share of the images.
        window: How many of the last scores an image is compared with; scores drift as the head learns.
        horizon: Over how many images a debt is paid; unless given, over those in which one more is due.
        pace: "even", "front" or an exponent.
        expected: N, images to come; None where nobody knows.

    Example:
        >>> policy = Paced(rate=0.1)
        >>> import random; chance = random.Random(0)
        >>> 98 <= sum(policy.decide(chance.random()).ask for _ in range(1000)) <= 100
        True
        >>> early = Paced(rate=0.1, pace=0.25, expected=1000)
        >>> sum(early.decide(chance.random()).ask for _ in range(100)) > 50
        True
    """

    kind = "paced"

    def __init__(
        self,
        rate: float = 0.05,
        window: int = 200,
        horizon: float | None = None,
        pace: str | float = "even",
        expected: int | None = None,
    ) -> None:
        super().__init__(math.inf)
        self.rate, self.horizon = check_rate(rate), horizon
        self.pace = "even" if expected is None else pace
        self.expected = 0 if expected is None or pace == "even" else expected
        self.total = rate * self.expected
        self.planned = 0.0  # questions due so far
        self.changes = 0  # answers of another class than the one before
        self.last: int | None = None  # the class of the last answer
        self._window = SlidingWindow(check_window(window, rate))

    @property
    def ahead(self) -> bool:
        """Whether more than an even share of the questions may have been put by now."""
        return self.pace != "even" and self.seen <= self.expected

    @property
    def early(self) -> bool:
        """Whether "front" asks early now."""
        return self.asked + 1 <= FIRST + GAIN * self.changes and self.asked < (1 - SPREAD) * self.total

    def answer(self, label: int) -> None:
        """Take note of the class that was answered; it stays noted where the answer is taken back."""
        self.changes += self.last is not None and label != self.last
        self.last = label

    def judge(self, entropy: float) -> Decision:
        self._window.add(entropy)
        now = self._plan()
        if self.asked >= self._ceiling(self.planned) - self._left_to_chance():
            return Decision(False, math.inf)
        paid = now if self.horizon is None else 1 / self.horizon
        share = min(1.0, max(0.0, now + (self.planned - self.asked - 0.5) * paid))
        held = self._window.count
        above = math.floor(share * held + 1e-9)
        overdue = self.planned - self.asked >= MOST_OWED + self._left_to_chance()
        self.threshold = -math.inf if overdue or above >= held else self._window.at_rank(held - above)
        return Decision(entropy > self.threshold, self.threshold)

    def affords(self) -> bool:
        return self.asked < self._ceiling(self.total if self.ahead else self.planned)

    def _plan(self) -> float:
        """Take one more image into what is due; what it added."""
        before = self.planned
        if not self.ahead:
            self.planned = self.total + self.rate * (self.seen - self.expected)
        elif self.pace == "front":
            return self._plan_front()
        else:
            self.planned = self.total * (self.seen / self.expected) ** float(self.pace)
        return self.rate if not self.ahead else self.planned - before

    def _plan_front(self) -> float:
        even = max(0.0, self.total - self.asked) / (self.expected - self.seen + 1)
        now = max(EARLY, even) if self.early else even
        owed = self.planned if self.early else min(self.planned, self.asked + 1)
        self.planned = min(owed + now, self.total)
        return now

    def _left_to_chance(self) -> int:
        """One question while chance may still want it, not at the end of what is expected."""
        return int(self.explore > 0 and not 0 <= self.expected - self.seen < 1 / self.rate)

    @staticmethod
    def _ceiling(questions: float) -> int:
        return math.ceil(questions - 1e-9)  # 0.07 · 100 is a hair above 7 in binary

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "window": self._window.state_dict(),
            "threshold": self.threshold if math.isfinite(self.threshold) else None,
            "planned": self.planned,
            "changes": self.changes,
            "last": self.last,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._window.load_state_dict(state["window"])
        self.threshold = math.inf if state["threshold"] is None else float(state["threshold"])
        self.planned = float(state.get("planned", self.rate * self.seen))  # not saved by an older version
        self.changes, self.last = int(state.get("changes", 0)), state.get("last")
