"""What every query policy is made of: a decision, counters, and the checks of its settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from taps.errors import SettingsError, StateError

NATS, RELATIVE = 2.0, 0.4  # τ0 of the paper; as a share of ln(classes), where none is given
# No entropy is near this; squares beyond it overflow, and one such value would spoil the variance for good.
LARGEST_ENTROPY = 1e100


@dataclass(frozen=True)
class Decision:
    """Whether to ask, and the threshold the entropy was compared with.

    Attributes:
        ask: Whether to ask.
        threshold: What the entropy was compared with.
        chance: How likely the question was, by all that was known before it was drawn: 1 where the policy
            asks, 0 where it cannot, between them where chance decided.
        random: Whether chance alone made it be asked.
    """

    ask: bool
    threshold: float
    chance: float = 0.0
    random: bool = False


class Policy(Protocol):
    """What every policy can do.

    Attributes:
        asked: Questions put so far, less those given back to the budget; one that takes less time
            than picking a class counts as a part of one.
        seen: Samples decided on so far; those with a non-finite entropy are not among them.
        skipped: Samples whose entropy was not finite. They are never asked about and leave no other trace.
    """

    @property
    def asked(self) -> float: ...
    @property
    def seen(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    def decide(self, entropy: float, allowed: bool = True) -> Decision: ...
    def charge(self, share: float) -> None: ...
    def refund(self, share: float) -> None: ...
    def answer(self, label: int) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Counting:
    """What policies have in common: they count, draw, and pass over entropies that are no numbers.

    A subclass says what it decides by (`judge`), what it can afford, and what more it saves.

    Args:
        threshold: Of the first sample.

    Attributes:
        kind: Its name, in what is saved.
        explore: Share of the samples that are asked about at random, whatever the policy says of them. Draws
            follow from the seed and the count of samples, so there is no generator to save.
        seed: Of these draws.
    """

    kind: str
    explore = 0.0
    seed = 0

    def __init__(self, threshold: float) -> None:
        self.asked: float = 0
        self.seen = self.skipped = 0
        self.threshold = threshold

    def judge(self, entropy: float) -> Decision:
        """What it says of one more sample, which is among those seen."""
        raise NotImplementedError

    def affords(self) -> bool:
        """Whether one more question is within the budget, if chance wants it."""
        return True

    def answer(self, label: int) -> None:
        """Take note of the class that was answered."""

    def charge(self, share: float) -> None:
        """Count a question, or a part of one, that was put without `decide`."""
        self.asked += share

    def refund(self, share: float) -> None:
        """Give a question, or a part of one, back to the budget."""
        self.asked -= share

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one sample; with `allowed=False` it is counted as seen but cannot be asked about."""
        entropy = float(entropy)  # of numpy or torch it would leak into the saved state
        if not abs(entropy) < LARGEST_ENTROPY:  # NaN is not below it either
            self.skipped += 1
            return Decision(False, self.threshold)
        self.seen += 1
        found = self.judge(entropy)
        chance = found.chance if found.chance or not found.ask else 1.0
        if chance < self.explore and self.affords():
            ask = bool(np.random.default_rng([self.seed, self.seen - 1, 1]).random() < self.explore)
            found, chance = Decision(ask, found.threshold, random=ask), self.explore
        if not allowed:
            return Decision(False, found.threshold)
        self.asked += found.ask
        return Decision(found.ask, found.threshold, chance, found.random)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while deciding, in plain numbers."""
        return {"kind": self.kind, "asked": self.asked, "seen": self.seen, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken.

        Raises:
            StateError: The state is of another kind of policy.
        """
        if state.get("kind") != self.kind:
            raise StateError(
                f"The saved policy is {state.get('kind')!r}, not {self.kind!r}; load it into one of its own "
                "kind."
            )
        self.asked, self.seen, self.skipped = state["asked"], int(state["seen"]), int(state["skipped"])


def first_threshold(tau0: float | None, tau0_relative: float | None, classes: int | None) -> float:
    """τ0 in nats, given as such or as a fraction of ln(classes).

    Where neither is given it is 0.4 · ln(classes): of 100 classes a little less than the paper's 2 nats,
    which 7 classes can never reach and nearly every image of 1,000 exceeds. Without classes it is 2 nats.

    Example:
        >>> round(first_threshold(2.0, tau0_relative=0.5, classes=100), 3)
        2.303
        >>> [round(first_threshold(None, None, classes), 2) for classes in (7, 100, 1000)]
        [0.78, 1.84, 2.76]
    """
    if tau0 is None and tau0_relative is None and classes is not None:
        tau0_relative = RELATIVE
    if tau0_relative is None:
        return check_number("tau0", NATS if tau0 is None else tau0)
    if classes is None or classes < 1:
        raise SettingsError(
            f"tau0_relative={tau0_relative} needs the number of classes; give classes as well."
        )
    return check_number("tau0_relative", tau0_relative) * math.log(classes)


def check_rate(rate: float, name: str = "rate", *, every: bool = False) -> float:
    """`rate` if it is a share strictly between 0 and 1; or, with `every`, 1: all of them."""
    if not (0 < rate < 1 or (every and rate == 1)):
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
