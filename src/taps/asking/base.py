"""What every query policy has: a name, a decision, counters, a hard budget, the checks of its settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np

from taps.errors import SettingsError, StateError
from taps.registry import Registry
from taps.saved import check_plain, real, whole

RAREST = 1e-12  # rate
NATS = 2.0  # τ0 of the paper
# No entropy is near this; squares beyond it overflow, and one such value would spoil the variance for good.
LARGEST_ENTROPY = 1e100


@dataclass(frozen=True)
class Decision:
    """Whether to ask, and the threshold the entropy was compared with.

    Attributes:
        chance: Probability of the question before it was drawn: 1 where the policy asks, 0 where it cannot,
            between them where chance decided.
        random: Whether chance alone made it be asked.
    """

    ask: bool
    threshold: float
    chance: float = 0.0
    random: bool = False

    @property
    def why(self) -> str:
        """Why it is asked, as `Prediction.why` has it."""
        if not self.ask:
            return ""
        return "random" if self.random else "owed" if self.threshold == -math.inf else "score"


@dataclass(frozen=True)
class PolicySettings:
    """What a policy is made of: settings of a method that asks, and what they come to.

    Attributes:
        rate: Query rate α.
        warmup: T_min.
        tau0: τ0 in nats.
        switch_at: Achieved rate from which a stricter threshold holds; None for `rate` itself.
        seed: For chance.
        classes: K; None where it is not known.
        pace: "even", "front" or an exponent.
        expected: Images to come; None where that is not known.
    """

    rate: float = 0.05
    warmup: int = 30
    tau0: float = NATS
    switch_at: float | None = None
    seed: int = 0
    classes: int | None = None
    pace: str | float = "even"
    expected: int | None = None


class Policy:
    """Base of the policies: counts, hard budget, random questions, entropies that are not finite.

    It never asks by itself. A subclass makes itself from settings (`make`), decides (`judge`) and names what
    else it saves. The decorator `policy` gives it its name.

    Attributes:
        kind: Its name.
        at_rate: Whether it keeps to a rate: at a rate of 1 every sample is asked about in its stead.
        ahead: Whether more than an even share of the questions may have been put by now.
        saved: Names of the attributes that are saved beside the counters; all are numbers.
        asked: Questions charged to the budget so far. A question that takes less time than picking a class
            counts as a part of one.
        seen: Samples decided on so far; those with a non-finite entropy are not among them.
        skipped: Samples whose entropy was not finite. They are never asked about and leave no other trace.
        explore: Share of the samples that are asked about at random, whatever the policy says of them. Draws
            follow from the seed and the count of samples, so there is no generator to save.
        seed: Of these draws.
    """

    kind = "never"
    at_rate = True
    saved: tuple[str, ...] = ()
    explore = 0.0
    seed = 0
    expected = 0  # of a policy with a pace: the samples to come
    most_rate: float | None = None
    most_total = math.inf

    def __init__(self, threshold: float) -> None:
        self.asked: float = 0
        self.seen = self.skipped = 0
        self.threshold = threshold

    def cap(self, rate: float | None = None, total: int | None = None) -> None:
        """Set a hard budget: what would exceed it is not asked, however uncertain the sample is.

        Args:
            rate: Never more than ⌈rate·t⌉ questions after t samples; ⌈rate·N⌉ during the N that a policy
                with a pace expects.
            total: Never more than this many questions in all.
        """
        self.most_rate = None if rate is None else check_rate(rate, every=True)
        self.most_total = math.inf if total is None else check_count("total", total)

    @property
    def _limit(self) -> float:
        if self.most_rate is None:
            return self.most_total
        return min(self.most_total, ceiling(self.most_rate * max(self.seen, self.expected)))

    @classmethod
    def make(cls, settings: PolicySettings) -> Self:
        """The policy that the settings ask for."""
        raise NotImplementedError

    @property
    def ahead(self) -> bool:
        return False

    def judge(self, entropy: float) -> Decision:
        """The policy's own decision on one more sample, which is among those seen."""
        return Decision(False, self.threshold)

    def affords(self) -> bool:
        """Whether one more random question is within the policy's own budget."""
        return True

    def answer(self, label: int) -> None:
        """Take note of the class that was answered."""

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decide on one sample; with `allowed=False` it is counted as seen but cannot be asked about."""
        entropy = float(entropy)  # of numpy or torch it would leak into the saved state
        if not abs(entropy) < LARGEST_ENTROPY:  # NaN is not below it either
            self.skipped += 1
            return Decision(False, self.threshold)
        self.seen += 1
        decision = self.judge(entropy)
        chance = decision.chance if decision.chance or not decision.ask else 1.0
        if chance < self.explore and self.affords():
            ask = bool(np.random.default_rng([self.seed, self.seen - 1, 1]).random() < self.explore)
            decision, chance = Decision(ask, decision.threshold, random=ask), self.explore
        if not allowed or self.asked >= self._limit:
            return Decision(False, decision.threshold)
        self.asked += decision.ask
        return Decision(decision.ask, decision.threshold, chance, decision.random)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while deciding, in plain numbers."""
        counters = {"kind": self.kind, "asked": self.asked, "seen": self.seen, "skipped": self.skipped}
        return counters | {name: getattr(self, name) for name in self.saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where `state_dict` was taken.

        Raises:
            StateError: The state is of another kind of policy.
        """
        if state.get("kind") != self.kind:
            raise StateError(
                f"The saved policy is {state.get('kind')!r}, not {self.kind!r}; load it into one of its own "
                "kind."
            )
        counts = {"asked": real(at_least=-1), "seen": whole(), "skipped": whole()}
        check_plain(state, counts | dict.fromkeys(self.saved, real()), "policy")
        self.asked, self.seen, self.skipped = state["asked"], int(state["seen"]), int(state["skipped"])
        for name in self.saved:
            setattr(self, name, state[name])


POLICIES = Registry[type[Policy]]("policy", "taps.asking")
P = TypeVar("P", bound=Policy)


def policy(name: str) -> Callable[[type[P]], type[P]]:
    """Give a policy its name, what users type for the setting `policy`; it stands above a class."""

    def entered(kind: type[P]) -> type[P]:
        kind.kind = name
        POLICIES.enter(name, kind, kind.__module__)
        return kind

    return entered


def ceiling(questions: float) -> int:
    """⌈questions⌉, where rounding buys no question: 0.07 · 100 is a hair above 7 in binary."""
    return math.ceil(questions - 1e-9)


def check_rate(rate: float, name: str = "rate", *, every: bool = False) -> float:
    """`rate` if it is a share strictly between 0 and 1; or, with `every`, 1: all of them."""
    if not (RAREST <= rate < 1 or (every and rate == 1)):
        raise SettingsError(
            f"{name}={rate} is not a rate; use a number between 0 and 1, such as 0.05 for 5 %."
        )
    return float(rate)


def check_count(name: str, count: int) -> int:
    """`count` if it is a whole number, 0 or more."""
    if count != int(count) or count < 0:
        raise SettingsError(f"{name}={count} is not a count; use a whole number, 0 or more.")
    return int(count)


def check_number(name: str, value: float) -> float:
    """`value` if it is finite."""
    if not math.isfinite(value):
        raise SettingsError(f"{name}={value} is not a threshold; use a finite number.")
    return float(value)


def check_window(window: int, rate: float) -> int:
    """`window` if so many samples have a top `rate`."""
    if check_count("window", window) * rate < 1:
        raise SettingsError(
            f"window={window} is too short to have a top {rate:g}; use at least {math.ceil(1 / rate)}."
        )
    return int(window)
