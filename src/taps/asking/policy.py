"""Query policies by name: Algorithm 1 of the paper and its rivals, with a soft or a hard budget."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from taps.asking.base import (
    NATS,
    POLICIES,
    Decision,
    Policy,
    PolicySettings,
    check_count,
    check_number,
    check_rate,
    check_window,
    policy,
)
from taps.asking.quantiles import QuantileSketch, SlidingWindow
from taps.errors import SettingsError

RELATIVE = 0.4  # τ0 as a share of ln(classes), where none is given


@policy("quantile")
class Quantile(Policy):
    """The running (1−α) quantile of the entropies as threshold: no shape of theirs is assumed.

    The current entropy is among those the quantile is taken of, as in Algorithm 1. Of n entropies the
    quantile is the one with ⌊α·n⌋ above it. Where an entropy *equals* it, the sample is asked about only
    while fewer than α of all samples have been: so entropies that take few values, or all the same one, are
    asked about at the rate too.

    Args:
        rate: Query rate α.
        warmup: The first sample whose threshold is no longer `tau0`, in nats.
        window: Take the quantile of the last `window` entropies only, which follows a drift; otherwise of all
            of them, exact for the first 2,000 and after that off by at most 0.05 % of their number in rank.

    Example:
        >>> policy = Quantile(rate=0.25, warmup=1)
        >>> sum(policy.decide(entropy).ask for entropy in [0.7] * 100)
        25
    """

    saved = ("threshold",)

    def __init__(
        self, rate: float = 0.05, warmup: int = 30, tau0: float = NATS, window: int | None = None
    ) -> None:
        super().__init__(check_number("tau0", tau0))
        self.rate, self.tau0 = check_rate(rate), self.threshold
        self.warmup = check_count("warmup", warmup)
        self._quantiles = QuantileSketch() if window is None else SlidingWindow(check_window(window, rate))

    @classmethod
    def make(cls, settings: PolicySettings) -> Self:
        return cls(settings.rate, settings.warmup, settings.tau0)

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
        return super().state_dict() | {"quantiles": self._quantiles.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._quantiles.load_state_dict(state["quantiles"])


@policy("random")
class Random(Policy):
    """Asks about a sample with probability α whatever its entropy (an ablation); its threshold is 0."""

    def __init__(self, rate: float = 0.05, seed: int | np.random.Generator = 0) -> None:
        super().__init__(0.0)
        self.rate = check_rate(rate, every=True)
        self._rng = np.random.default_rng(seed)

    @classmethod
    def make(cls, settings: PolicySettings) -> Self:
        return cls(settings.rate, settings.seed)

    def judge(self, entropy: float) -> Decision:
        ask = bool(self._rng.random() < self.rate)
        return Decision(ask, self.threshold, self.rate, random=ask)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._rng.bit_generator.state = state["rng"]


@policy("fixed")
class Fixed(Policy):
    """Asks about every sample whose entropy exceeds one threshold that never moves (an ablation)."""

    at_rate = False

    def __init__(self, threshold: float = NATS) -> None:
        super().__init__(check_number("threshold", threshold))

    @classmethod
    def make(cls, settings: PolicySettings) -> Self:
        return cls(settings.tau0)

    def judge(self, entropy: float) -> Decision:
        return Decision(entropy > self.threshold, self.threshold)


def make_policy(
    name: str,
    *,
    rate: float = 0.05,
    warmup: int = 30,
    tau0: float | None = None,
    switch_at: float | None = None,
    budget: str | int = "soft",
    seed: int = 0,
    classes: int | None = None,
    tau0_relative: float | None = None,
    pace: str | float = "even",
    expected: int | None = None,
    explore: float = 0.0,
) -> Policy:
    """Make a policy by name, with its budget; settings are those of a method that asks.

    Args:
        name: One of `POLICIES`.
        rate: Query rate α; at 1 every sample is asked about, whatever the policy (but "fixed").
        budget: "soft" (the policy alone), or a cap beside it: "hard" (`Policy.cap` by rate) or a total.
        pace: For "paced".
        expected: Images to come, where that is known; a total budget then sets the rate that spends it.
        explore: Share of the questions that are put at random, whatever the policy says.

    Raises:
        SettingsError: A value is out of range, or a name is unknown.
    """
    check_rate(rate, every=True)
    total = budget if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0 else None
    if total is None and budget not in ("soft", "hard"):
        raise SettingsError(
            f'budget={budget!r} is not a budget; use "soft", "hard" or a total number of questions.'
        )
    if total and expected:
        rate = min(1.0, total / expected)
    first = first_threshold(tau0, tau0_relative, classes)
    kind = POLICIES[name]
    if rate == 1 and kind.at_rate:
        kind = Random
    made = kind.make(PolicySettings(rate, warmup, first, switch_at, seed, classes, pace, expected))
    made.explore, made.seed = explore * rate, seed
    made.cap(rate if budget == "hard" else None, total)
    return made


def first_threshold(tau0: float | None, tau0_relative: float | None, classes: int | None) -> float:
    """τ0 in nats, given as such or as a fraction of ln(classes).

    Where neither is given it is 0.4 · ln(classes): of 100 classes a little less than the paper's 2 nats,
    which 7 classes can never reach and nearly every image of 1,000 exceeds. Without classes it is 2 nats.

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
