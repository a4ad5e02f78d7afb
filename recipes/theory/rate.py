"""Proposition 2: the query rate of Algorithm 1 and of its rivals, simulated for many streams at once.

Entropies are samples × streams. Every function decides exactly as the policy of the same name does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MEAN, STD = 1.2, 0.5
"""Mean and standard deviation of the simulated entropies in nats: 5.5 % of normal ones exceed τ0 = 2."""


@dataclass(frozen=True)
class RateTrace:
    """What was asked, samples × streams.

    Attributes:
        asks: Whether the sample was asked about.
        strict: Whether the stricter threshold was in force (Algorithm 1 only).
    """

    asks: BoolArray
    strict: BoolArray

    def rate_after(self, samples: int) -> FloatArray:
        """R_N of each stream after its first `samples`."""
        rate: FloatArray = self.asks[:samples].mean(axis=0)
        return rate


def simulate_dynamic(
    entropies: FloatArray,
    rate: float = 0.05,
    warmup: int = 30,
    tau0: float = 2.0,
    switch_at: float | None = None,
    hard: bool = False,
) -> RateTrace:
    """Algorithm 1 as `policy.Dynamic` has it; with `hard` after `cap(rate)`."""
    z_selection, z_high = NormalDist().inv_cdf(1 - rate), NormalDist().inv_cdf(1 - rate / 2)
    switch_at = rate if switch_at is None else switch_at
    mean, squares, asked = (np.zeros(entropies.shape[1]) for _ in range(3))
    asks, strict = np.zeros(entropies.shape, bool), np.zeros(entropies.shape, bool)
    for t, entropy in enumerate(entropies, start=1):
        step = entropy - mean
        mean += step / t
        squares += step * (entropy - mean)
        if t < warmup:
            threshold: FloatArray | float = tau0
        else:
            over = strict[t - 1] = asked / t >= switch_at
            std = np.sqrt(squares / (t - 1)) if t > 1 else np.zeros_like(squares)
            threshold = mean + np.where(over, z_high, z_selection) * std
        ask = entropy > threshold
        if hard:
            ask &= asked < math.ceil(rate * t - 1e-9)
        asks[t - 1] = ask
        asked += ask
    return RateTrace(asks, strict)


def simulate_quantile(
    entropies: FloatArray,
    rate: float = 0.05,
    warmup: int = 30,
    tau0: float = 2.0,
    window: int | None = None,
) -> RateTrace:
    """The running quantile of all, or of the last `window`, as `policy.Quantile` while it is exact."""
    above, equal = _against_all(entropies, rate) if window is None else _against_last(entropies, rate, window)
    asked = np.zeros(entropies.shape[1])
    asks = np.zeros(entropies.shape, bool)
    for t, entropy in enumerate(entropies, start=1):
        ask = entropy > tau0 if t < warmup else above[t - 1] | (equal[t - 1] & (asked < rate * t))
        asks[t - 1] = ask
        asked += ask
    return RateTrace(asks, np.zeros_like(asks))


def _against_all(entropies: FloatArray, rate: float) -> tuple[BoolArray, BoolArray]:
    """Where an entropy is above, and where it equals, the quantile of all up to and with itself."""
    length, streams = entropies.shape
    above, equal = np.zeros(entropies.shape, bool), np.zeros(entropies.shape, bool)
    # In descending order below a fence; of n entropies only the ⌊αn⌋ + 1 highest can ever be the quantile.
    highest = np.full((math.floor(rate * length + 1e-9) + 2, streams), -np.inf)
    highest[0] = np.inf
    for t, entropy in enumerate(entropies, start=1):
        # What is higher stays, what is lower moves down by one.
        highest[1:] = np.maximum(highest[1:], np.minimum(highest[:-1], entropy))
        threshold = highest[1 + math.floor(rate * t + 1e-9)]
        above[t - 1], equal[t - 1] = entropy > threshold, entropy == threshold
    return above, equal


def _against_last(entropies: FloatArray, rate: float, window: int) -> tuple[BoolArray, BoolArray]:
    """Where an entropy is above, and where it equals, the quantile of the last `window` with itself."""
    length = len(entropies)
    higher, at_least = np.zeros(entropies.shape, np.int32), np.ones(entropies.shape, np.int32)
    for lag in range(1, min(window, length)):
        higher[lag:] += entropies[:-lag] > entropies[lag:]
        at_least[lag:] += entropies[:-lag] >= entropies[lag:]
    held = np.minimum(np.arange(1, length + 1), window)[:, None]
    allowed = np.floor(rate * held + 1e-9)
    above: BoolArray = at_least <= allowed
    equal: BoolArray = (higher <= allowed) & ~above
    return above, equal


def draw_entropies(rng: np.random.Generator, shape: str, length: int, streams: int) -> FloatArray:
    """Entropies of the named shape, samples × streams; before any drift all have the same mean and std."""
    standard = SHAPES[shape](rng, length, streams)
    values: FloatArray = MEAN + STD * standard
    return values


def _bimodal(hard: float) -> Callable[[np.random.Generator, int, int], FloatArray]:
    """Two narrow normal humps three apart before scaling, a share `hard` of the samples in the upper one."""

    def draw(rng: np.random.Generator, length: int, streams: int) -> FloatArray:
        upper = rng.random((length, streams)) < hard
        raw = 3.0 * upper + 0.3 * rng.standard_normal((length, streams))
        std = math.sqrt(9.0 * hard * (1 - hard) + 0.09)
        return (raw - 3.0 * hard) / std

    return draw


def _drifting(
    drift: Callable[[FloatArray], FloatArray],
) -> Callable[[np.random.Generator, int, int], FloatArray]:
    """Normal entropies whose mean moves, by `drift(share of the stream gone by)` standard deviations."""

    def draw(rng: np.random.Generator, length: int, streams: int) -> FloatArray:
        moved = drift(np.linspace(0, 1, length))[:, None]
        values: FloatArray = rng.standard_normal((length, streams)) + moved
        return values

    return draw


# "bimodal, 10 %" has 10 % of its samples in the upper hump; "rounded" ones are whole standard deviations.
SHAPES: dict[str, Callable[[np.random.Generator, int, int], FloatArray]] = {
    "normal": lambda rng, n, s: rng.standard_normal((n, s)),
    "exponential": lambda rng, n, s: rng.exponential(size=(n, s)) - 1,
    "uniform": lambda rng, n, s: math.sqrt(3) * (2 * rng.random((n, s)) - 1),
    "bimodal, 3 %": _bimodal(0.03),
    "bimodal, 10 %": _bimodal(0.10),
    "bimodal, 40 %": _bimodal(0.40),
    "rounded": lambda rng, n, s: np.round(rng.standard_normal((n, s))),
    "rising 2 std": _drifting(lambda gone: 2 * gone),
    "falling 2 std": _drifting(lambda gone: -2 * gone),
    "jump up 2 std": _drifting(lambda gone: np.where(gone < 0.5, 0.0, 2.0)),
    "jump down 2 std": _drifting(lambda gone: np.where(gone < 0.5, 0.0, -2.0)),
}


def expected_rate_under_switch(rate: float, samples: int) -> float:
    """R_N of Algorithm 1 to first order, for normal entropies and a switch at α: α − √(2α(1−α)/πN).

    Below α the surplus of questions is a walk without drift, above it one that is driven back: a walk held
    down by a ceiling, whose mean distance from it is that of |normal|.
    """
    return rate - math.sqrt(2 * rate * (1 - rate) / (math.pi * samples))


def limit_rate(switch_at: float, share: float, share_strict: float) -> float:
    """What R_N tends to for independent entropies of any shape.

    Args:
        switch_at: Share of questions from which on the threshold is the stricter one.
        share: Probability of exceeding the standard threshold.
        share_strict: Probability of exceeding the stricter one.

    Example:
        >>> limit_rate(0.05, 0.071, 0.052), limit_rate(0.05, 0.025, 0.0), limit_rate(0.05, 0.06, 0.01)
        (0.052, 0.025, 0.05)
    """
    return min(max(switch_at, share_strict), share)
