"""Query policies: Algorithm 1 of the paper, its rivals, and a hard budget around any of them."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from taps.active.decision import (
    Decision,
    Policy,
    check_count,
    check_number,
    check_rate,
    counters,
    first_threshold,
    is_usable,
    load_counters,
)
from taps.active.pace import Paced
from taps.active.quantiles import QuantileSketch, SlidingWindow
from taps.errors import SettingsError

Budget = Literal["soft", "hard"] | int


class Dynamic:
    """Algorithm 1: a threshold z standard deviations above the running mean, z larger while over budget.

    Samples are counted from 1 and the current entropy is part of the mean and the standard deviation (n−1) it
    is compared with. Before sample `warmup` the threshold is τ0.

    Args:
        rate: Query rate α. z is that of the top α, and of the top α/2 while over-querying.
        warmup: T_min, the first sample whose threshold is no longer τ0.
        tau0: τ0 in nats.
        switch_at: Share of questions so far from which on α/2 is used; α unless given.
        tau0_relative: τ0 as a fraction of ln(classes), the largest entropy there can be; replaces `tau0`.
        classes: Number of classes, for `tau0_relative`.

    Example:
        >>> policy = Dynamic(rate=0.05, warmup=3, tau0=2.0)
        >>> [policy.decide(entropy).ask for entropy in (0.5, 2.1, 0.6, 0.4, float("nan"), 0.5)]
        [False, True, False, False, False, False]
        >>> policy.asked, policy.seen, policy.skipped
        (1, 5, 1)
    """

    def __init__(
        self,
        rate: float = 0.05,
        warmup: int = 30,
        tau0: float = 2.0,
        switch_at: float | None = None,
        *,
        tau0_relative: float | None = None,
        classes: int | None = None,
    ) -> None:
        self.rate = check_rate(rate)
        self.warmup = check_count("warmup", warmup)
        self.tau0 = first_threshold(tau0, tau0_relative, classes)
        self.switch_at = check_rate(rate if switch_at is None else switch_at, "switch_at")
        self.z_selection = NormalDist().inv_cdf(1 - rate)
        self.z_high = NormalDist().inv_cdf(1 - rate / 2)
        self.asked = self.seen = self.skipped = 0
        self.mean = 0.0
        self._squares = 0.0  # sum of squared deviations from the mean, after Welford
        self._threshold = self.tau0

    @property
    def std(self) -> float:
        """Sample standard deviation of the entropies so far; 0 before there are two."""
        return math.sqrt(self._squares / (self.seen - 1)) if self.seen > 1 else 0.0

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one sample; with `allowed=False` it is counted as seen but cannot be asked about."""
        entropy = float(entropy)  # of numpy or torch it would leak into the saved state
        if not is_usable(entropy):
            self.skipped += 1
            return Decision(False, self._threshold)
        self._observe(entropy)
        self._threshold = self._current_threshold()
        ask = allowed and entropy > self._threshold
        self.asked += ask
        return Decision(ask, self._threshold)

    def _observe(self, entropy: float) -> None:
        self.seen += 1
        step = entropy - self.mean
        self.mean += step / self.seen
        self._squares += step * (entropy - self.mean)

    def _current_threshold(self) -> float:
        if self.seen < self.warmup:
            return self.tau0
        over_querying = self.asked / self.seen >= self.switch_at
        return self.mean + (self.z_high if over_querying else self.z_selection) * self.std

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while deciding, in plain numbers."""
        return {
            **counters("dynamic", self),
            "mean": self.mean,
            "squares": self._squares,
            "threshold": self._threshold,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken."""
        load_counters("dynamic", self, state)
        self.mean, self._squares = float(state["mean"]), float(state["squares"])
        self._threshold = float(state["threshold"])


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
        tau0_relative: τ0 as a fraction of ln(classes); replaces `tau0`.
        classes: Number of classes, for `tau0_relative`.

    Example:
        >>> policy = Quantile(rate=0.25, warmup=1)
        >>> sum(policy.decide(entropy).ask for entropy in [0.7] * 100)
        25
    """

    def __init__(
        self,
        rate: float = 0.05,
        warmup: int = 30,
        tau0: float = 2.0,
        window: int | None = None,
        *,
        tau0_relative: float | None = None,
        classes: int | None = None,
    ) -> None:
        self.rate = check_rate(rate)
        self.warmup = check_count("warmup", warmup)
        self.tau0 = first_threshold(tau0, tau0_relative, classes)
        if window is not None and check_count("window", window) * rate < 1:
            raise SettingsError(
                f"window={window} is too short to have a top {rate:g}; use at least {math.ceil(1 / rate)}."
            )
        self.asked = self.seen = self.skipped = 0
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


class Random:
    """Asks about a sample with probability α whatever its entropy (an ablation); gives its threshold as 0.

    Args:
        rate: Query rate α.
        seed: Seed of its own generator, or a generator that is from now on its own.
    """

    def __init__(self, rate: float = 0.05, seed: int | np.random.Generator = 0) -> None:
        self.rate = check_rate(rate)
        self._rng = np.random.default_rng(seed)
        self.asked = self.seen = self.skipped = 0

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one sample; with `allowed=False` the coin is thrown all the same, but nothing asked."""
        entropy = float(entropy)  # of numpy or torch it would leak into the saved state
        if not is_usable(entropy):
            self.skipped += 1
            return Decision(False, 0.0)
        self.seen += 1
        ask = bool(self._rng.random() < self.rate) and allowed
        self.asked += ask
        return Decision(ask, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes while deciding, the generator included, in plain numbers."""
        return {**counters("random", self), "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken."""
        load_counters("random", self, state)
        self._rng.bit_generator.state = state["rng"]


class Fixed:
    """Asks about every sample whose entropy exceeds one threshold that never moves (an ablation)."""

    def __init__(self, threshold: float = 2.0) -> None:
        self.threshold = check_number("threshold", threshold)
        self.asked = self.seen = self.skipped = 0

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one sample; with `allowed=False` it is counted as seen but cannot be asked about."""
        entropy = float(entropy)  # of numpy or torch it would leak into the saved state
        if not is_usable(entropy):
            self.skipped += 1
            return Decision(False, self.threshold)
        self.seen += 1
        ask = allowed and entropy > self.threshold
        self.asked += ask
        return Decision(ask, self.threshold)

    def state_dict(self) -> dict[str, Any]:
        """The counters."""
        return counters("fixed", self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken."""
        load_counters("fixed", self, state)


class Capped:
    """A hard budget around any policy: what would exceed it is not asked, however uncertain the sample is.

    Args:
        policy: The policy that decides within the budget.
        rate: Never more than ⌈rate·t⌉ + slack questions after t samples.
        slack: Questions that may be asked ahead of the rate.
        total: Never more than this many questions in all.

    Example:
        >>> policy = Capped(Fixed(threshold=1.0), rate=0.1, slack=1)
        >>> sum(policy.decide(5.0).ask for _ in range(100))
        11
    """

    def __init__(
        self, policy: Policy, rate: float | None = None, slack: int = 0, total: int | None = None
    ) -> None:
        if rate is None and total is None:
            raise SettingsError(
                "A hard budget needs a rate or a total number of questions; give one of them."
            )
        self.policy = policy
        self.rate = None if rate is None else check_rate(rate)
        self.slack = check_count("slack", slack)
        self.total = None if total is None else check_count("total", total)

    @property
    def asked(self) -> int:
        """Questions put so far."""
        return self.policy.asked

    @property
    def seen(self) -> int:
        """Samples decided on so far."""
        return self.policy.seen

    @property
    def skipped(self) -> int:
        """Samples whose entropy was not finite."""
        return self.policy.skipped

    def decide(self, entropy: float, allowed: bool = True) -> Decision:
        """Decides on one sample, forbidding the question where the budget is used up."""
        return self.policy.decide(entropy, allowed and self.asked < self._limit(self.seen + 1))

    def _limit(self, samples: int) -> float:
        limit = math.inf if self.total is None else float(self.total)
        if self.rate is None:
            return limit
        # 0.07 · 100 is a hair above 7 in binary; without the 1e-9 it would buy an eighth question.
        return min(limit, math.ceil(self.rate * samples - 1e-9) + self.slack)

    def state_dict(self) -> dict[str, Any]:
        """The state of the policy inside; a cap has none of its own."""
        return self.policy.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from where `state_dict` was taken."""
        self.policy.load_state_dict(state)


def make_policy(
    name: str,
    *,
    rate: float = 0.05,
    warmup: int = 30,
    tau0: float = 2.0,
    switch_at: float | None = None,
    budget: Budget = "soft",
    seed: int = 0,
    classes: int | None = None,
    tau0_relative: float | None = None,
    window: int | None = None,
) -> Policy:
    """Makes a policy by name, with its budget.

    Args:
        name: "dynamic" (Algorithm 1), "quantile", "random", "fixed" (its threshold is τ0) or "paced" (the
            highest, at an exact rate).
        rate: Query rate α.
        warmup: T_min, the first sample whose threshold is no longer τ0.
        tau0: τ0 in nats.
        switch_at: For "dynamic", the share of questions from which on it is stricter; α unless given.
        budget: "soft" (the policy alone), "hard" (never more than ⌈α·t⌉ after t samples) or a total.
        seed: For "random".
        classes: Number of classes, for `tau0_relative`.
        tau0_relative: τ0 as a fraction of ln(classes); replaces `tau0`.
        window: For "quantile", how many of the last entropies it looks at; all unless given.

    Raises:
        SettingsError: A value is out of range, or a name is unknown.
    """
    check_rate(rate)
    policy: Policy
    if name == "dynamic":
        policy = Dynamic(rate, warmup, tau0, switch_at, tau0_relative=tau0_relative, classes=classes)
    elif name == "quantile":
        policy = Quantile(rate, warmup, tau0, window, tau0_relative=tau0_relative, classes=classes)
    elif name == "random":
        policy = Random(rate, seed)
    elif name == "fixed":
        policy = Fixed(first_threshold(tau0, tau0_relative, classes))
    elif name == "paced":
        policy = Paced(rate, window or max(200, math.ceil(2 / rate)))
    else:
        raise SettingsError(f"policy={name!r} is unknown; choose dynamic, quantile, random, fixed or paced.")
    if budget == "soft":
        return policy
    if budget == "hard":
        return Capped(policy, rate=rate)
    if isinstance(budget, int) and not isinstance(budget, bool) and budget >= 0:
        return Capped(policy, total=budget)
    raise SettingsError(
        f'budget={budget!r} is not a budget; use "soft", "hard" or a total number of questions.'
    )
