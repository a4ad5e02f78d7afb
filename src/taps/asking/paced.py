"""The policy "paced": asks about the highest scores, at an even rate or most of them early."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Self

from taps.asking.base import Decision, Policy, PolicySettings, ceiling, check_rate, check_window, policy
from taps.asking.quantiles import SlidingWindow
from taps.saved import check_plain, flag, maybe, real, whole

MOST_OWED = 2  # questions that may be behind schedule before one is asked at any score
# Of "front", chosen on development streams (docs/results/pace.md):
EARLY_SHARE = 0.4  # share of the images asked about early
SPREAD = 0.2  # share of the budget that stays spread over the stream
ALIKE = 2.0  # pairs of answers of one class, at most: times what even shares of the classes give
WAIT = 5  # questions that may wait for their answers while it asks early, or that it waits for after that


@policy("paced")
class Paced(Policy):
    """Asks about the images of highest score, at a given pace.

    An image is asked about where its score is among the top q of the last `window`. q is about α where the
    budget is on schedule, more where questions are owed. How many are due after t images follows the pace:

    - "even": α·t after t images. Never more than ⌈α·t⌉ questions have been put and never fewer than α·t − 2
      (3 where some are put at random): what is owed then is asked at any score.
    - a number a: the budget times (t/N)^a, where N images are expected.
    - "front": two images of five, up to four fifths of the budget, while the answers are as mixed as the
      classes are; what is left is spread evenly over the images left. n answers are mixed while the pairs of
      one class are at most twice as many as where all classes are as frequent as each other, and √n. So a
      stream that mixes its classes is asked about at once; one that shows them one after the other, a few at
      a time or one above all is asked about all along. While five questions wait, it asks evenly.

    After the images expected, or where their number is not known, the pace is even. Where it is known, all
    ⌈α·N⌉ questions are put, half of them in the first half. One question of what is due is left to chance
    wherever some are put at random, so that every image can be drawn.

    Args:
        rate: α, share of the images.
        window: How many of the last scores an image is compared with; scores drift as the head learns.
        pace: "even", "front" or an exponent.
        expected: N, images to come; None where that is unknown.
        classes: K.

    Example:
        >>> policy = Paced(rate=0.1)
        >>> import random; chance = random.Random(0)
        >>> 98 <= sum(policy.decide(chance.random()).ask for _ in range(1000)) <= 100
        True
        >>> early = Paced(rate=0.1, pace=0.25, expected=1000)
        >>> sum(early.decide(chance.random()).ask for _ in range(100)) > 50
        True
    """

    def __init__(
        self,
        rate: float = 0.05,
        window: int = 200,
        pace: str | float = "even",
        expected: int | None = None,
        classes: int = 2,
    ) -> None:
        super().__init__(math.inf)
        self.rate = check_rate(rate)
        self.pace = "even" if expected is None else pace
        self.expected = expected or 0
        self.total = rate * self.expected
        self.planned = 0.0  # questions due so far
        self.classes = classes
        self.over = False  # whether "front" asks evenly from now on
        self.counts: Counter[int] = Counter()  # answers of each class
        self._window = SlidingWindow(check_window(window, rate))

    @classmethod
    def make(cls, settings: PolicySettings) -> Self:
        """Compares with the last scores of which two are at the rate, of 200 at least."""
        window = max(200, math.ceil(2 / settings.rate))
        return cls(settings.rate, window, settings.pace, settings.expected, settings.classes or 2)

    @property
    def ahead(self) -> bool:
        return self.pace != "even" and self.seen <= self.expected

    @property
    def mixed(self) -> bool:
        """Whether the answers so far may be a fair sample of a stream of all classes."""
        answers = self.counts.total()
        same = sum(count * (count - 1) for count in self.counts.values()) / 2
        usual = min(ALIKE / self.classes, (1 + 1 / self.classes) / 2)  # of few classes many pairs are alike
        return same <= usual * answers * (answers - 1) / 2 + math.sqrt(answers)

    def answer(self, label: int) -> None:
        """Take note of the class that was answered; it stays noted where the answer is taken back."""
        self.counts[label] += 1

    def judge(self, entropy: float) -> Decision:
        self._window.add(entropy)
        now = self._plan()
        due, needed = ceiling(self.planned), self._needed()
        if self.asked >= due - (0 if needed else self._left_to_chance()):
            return Decision(False, math.inf)
        # A debt is paid over the images in which one more question is due.
        share = min(1.0, max(0.0, now + (self.planned - self.asked - 0.5) * now))
        held = self._window.count
        above = math.floor(share * held + 1e-9)
        overdue = needed or self.planned - self.asked >= MOST_OWED + self._left_to_chance()
        self.threshold = -math.inf if overdue or above >= held else self._window.at_rank(held - above)
        return Decision(entropy > self.threshold, self.threshold)

    def affords(self) -> bool:
        return self.asked < ceiling(self.total if self.ahead else self.planned)

    def _plan(self) -> float:
        """Take one more image into what is due; what it added."""
        if not self.ahead:
            self.planned = self.total + self.rate * (self.seen - self.expected)
            return self.rate
        if self.pace == "front":
            return self._plan_front()
        before = self.planned
        self.planned = self.total * (self.seen / self.expected) ** float(self.pace)
        return self.planned - before

    def _plan_front(self) -> float:
        # Random questions go on to the end: without them the accuracy cannot be estimated.
        kept = max(SPREAD * self.total, self.explore * (self.expected - self.seen))
        if not self.over and (self.asked >= self.total - kept or not self.mixed):
            # A few questions too early are waited for: one class must not have many more than the others.
            even = self.rate * (self.seen - 1)
            self.over, self.planned = True, even + max(0.0, self.asked - max(WAIT, even))
        even = max(0.0, self.total - self.planned) / (self.expected - self.seen + 1)
        early = not self.over and self.asked - self.counts.total() < WAIT
        now = max(EARLY_SHARE, even) if early else even
        self.planned = min(self.planned + now, self.total)
        return now

    def _needed(self) -> bool:
        """Whether all images up to the middle or the end are needed for what is to be spent by then."""
        marks = (((self.expected + 1) // 2, self.total / 2), (self.expected, self.total))
        return any(
            0 <= images - self.seen <= ceiling(questions) - self.asked - 1 for images, questions in marks
        )

    def _left_to_chance(self) -> int:
        """One question while chance may still want it, not at the end of what is expected."""
        return int(self.explore > 0 and not 0 <= self.expected - self.seen < 1 / self.rate)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "window": self._window.state_dict(),
            "threshold": self.threshold if math.isfinite(self.threshold) else None,
            "planned": self.planned,
            "over": self.over,
            "counts": sorted(self.counts.items()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        own = {"planned": real(), "over": flag, "counts": [(whole(), whole())], "threshold": maybe(real())}
        check_plain(state, own, "policy")
        self._window.load_state_dict(state["window"])
        self.threshold = math.inf if state["threshold"] is None else float(state["threshold"])
        self.planned = float(state["planned"])
        self.over, self.counts = state["over"], Counter(dict(state["counts"]))
