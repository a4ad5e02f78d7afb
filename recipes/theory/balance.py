"""Proposition 1: the class-balanced buffer, simulated for many streams at once.

Imbalance is f = Σ_c |n_c − L/K|, for L samples held of K classes. It is kept as the whole number K·f, so that
nothing here depends on rounding.

Algorithm 2 is `taps.asking.buffer.choose_victim`; for the study's nine million evictions, one buffer at a
time, it would need minutes instead of seconds. Here it stands for all streams together, and tests hold every
eviction against `choose_victim`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

LOSS_UNITS = 1 << 20
"""Losses are whole multiples of 1/LOSS_UNITS: their sums are exact, as those of the buffer are."""

_ORDER_BITS = 24
_SUM_BITS = 46
_LARGEST_LOSS = 1 << 34  # 16,384 nats; 4,096 of them fit into the bits of a sum
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class BalanceTrace:
    """What happened to each stream's buffer from the sample that filled it on; row t is t samples later.

    Attributes:
        classes: K.
        capacity: L.
        imbalance: K·f, samples × streams.
        largest: Samples of the class that has most, samples × streams.
        victims: Which labelled sample of the stream was evicted, counted from 0; row t by sample t+1.
        counts: Samples of each class at the end, streams × classes.
    """

    classes: int
    capacity: int
    imbalance: IntArray
    largest: IntArray
    victims: IntArray
    counts: IntArray

    @property
    def is_most_even(self) -> NDArray[np.bool_]:
        """Where no buffer of this size could be more balanced."""
        even: NDArray[np.bool_] = self.imbalance == lowest_imbalance(self.classes, self.capacity)
        return even


def lowest_imbalance(classes: int, capacity: int) -> int:
    """K·f of the most even buffer: with r = L mod K, f = 2·r·(1 − r/K).

    Example:
        >>> [lowest_imbalance(classes=10, capacity=L) / 10 for L in (50, 55, 5)]
        [0.0, 5.0, 5.0]
    """
    rest = capacity % classes
    return 2 * rest * (classes - rest)


def first_time(reached: NDArray[np.bool_]) -> IntArray:
    """Row in which each column is first true; −1 where it never is."""
    return np.where(reached.any(axis=0), reached.argmax(axis=0), -1).astype(np.int64)


def simulate_balance(
    labels: IntArray, losses: IntArray, classes: int, capacity: int, tail: int | None = None
) -> BalanceTrace:
    """Runs Algorithm 2 on labelled samples.

    Args:
        labels: Class of each sample, streams × samples.
        losses: Loss of each in units of 1/LOSS_UNITS, streams × samples.
        classes: K.
        capacity: L, less than the number of samples.
        tail: Stop when all streams have been at their most even and this many samples more have come.
    """
    buffers = _Buffers(labels[:, :capacity], losses[:, :capacity], classes)
    goal, all_even_at = lowest_imbalance(classes, capacity), None
    seen_even = buffers.imbalance == goal
    imbalance, largest, victims = [buffers.imbalance.copy()], [buffers.largest()], []
    for t in range(capacity, labels.shape[1]):
        victims.append(buffers.replace(labels[:, t], losses[:, t], order=t))
        imbalance.append(buffers.imbalance.copy())
        largest.append(buffers.largest())
        seen_even |= buffers.imbalance == goal
        if all_even_at is None and seen_even.all():
            all_even_at = t
        if tail is not None and all_even_at is not None and t - all_even_at >= tail:
            break
    return BalanceTrace(
        classes, capacity, np.array(imbalance), np.array(largest), np.array(victims), buffers.counts()
    )


class _Buffers:
    """One full buffer for each stream."""

    def __init__(self, labels: IntArray, losses: IntArray, classes: int) -> None:
        streams, self.capacity = labels.shape
        self.classes = classes
        self._rows = np.arange(streams)
        self._labels = labels.astype(np.int16)
        # One number orders samples by loss and then by age, another classes by size and then by lowest loss:
        # of classes of equal size the lowest sum is the lowest mean.
        self._keys = (losses.astype(np.int64) << _ORDER_BITS) | np.arange(self.capacity)
        self._ranks = np.zeros((streams, classes), np.int64)
        for slot in range(self.capacity):
            self._ranks[self._rows, labels[:, slot]] += (1 << _SUM_BITS) - losses[:, slot]
        self.imbalance: IntArray = self._distance(self.counts()).sum(axis=1)

    def counts(self) -> IntArray:
        return _size(self._ranks)

    def largest(self) -> IntArray:
        return _size(self._ranks.max(axis=1))

    def replace(self, labels: IntArray, losses: IntArray, order: int) -> IntArray:
        """Evicts one sample of each stream for the new one; returns the orders of the evicted."""
        slots = self._victims()
        gone, keys = self._labels[self._rows, slots], self._keys[self._rows, slots]
        self._count(gone, -1, keys >> _ORDER_BITS)
        self._count(labels, +1, losses)
        self._labels[self._rows, slots] = labels
        self._keys[self._rows, slots] = (losses << _ORDER_BITS) | order
        evicted: IntArray = keys & ((1 << _ORDER_BITS) - 1)
        return evicted

    def _victims(self) -> IntArray:
        chosen = self._ranks.argmax(axis=1)
        of_class = self._labels == chosen.astype(np.int16)[:, None]
        slots: IntArray = np.where(of_class, self._keys, _NEVER).argmin(axis=1)
        tied = self._ranks == self._ranks[self._rows, chosen][:, None]
        if np.count_nonzero(tied) > len(tied):  # classes of equal size and mean: their samples together
            for row in np.flatnonzero(tied.sum(axis=1) > 1):
                slots[row] = np.where(tied[row, self._labels[row]], self._keys[row], _NEVER).argmin()
        return slots

    def _count(self, labels: NDArray[Any], by: int, losses: IntArray) -> None:
        ranks = self._ranks[self._rows, labels]
        before = _size(ranks)
        self.imbalance = self.imbalance + self._distance(before + by) - self._distance(before)
        self._ranks[self._rows, labels] = ranks + by * ((1 << _SUM_BITS) - losses)

    def _distance(self, counts: IntArray) -> IntArray:
        distance: IntArray = np.abs(self.classes * counts - self.capacity)
        return distance


def _size(ranks: IntArray) -> IntArray:
    """How many samples a class of this rank holds; its losses are what is missing to a whole multiple."""
    return -((-ranks) >> _SUM_BITS)


def zipf(classes: int, exponent: float) -> NDArray[np.float64]:
    """Class probabilities proportional to rank^−exponent; exponent 0 is uniform."""
    weights = np.arange(1, classes + 1, dtype=np.float64) ** -exponent
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def draw_labels(
    rng: np.random.Generator, shares: NDArray[np.float64], streams: int, samples: int
) -> IntArray:
    """Independent classes with the given probabilities, streams × samples."""
    edges = np.cumsum(shares)
    edges[np.flatnonzero(shares)[-1] :] = 1.0  # rounding must not make an impossible class possible
    return np.searchsorted(edges, rng.random((streams, samples)), side="right").astype(np.int64)


def draw_losses(rng: np.random.Generator, kind: str, labels: IntArray, classes: int) -> IntArray:
    """Losses in units of 1/LOSS_UNITS: "random", "by class" (some classes are harder) or "equal"."""
    if kind == "equal":
        return np.full(labels.shape, LOSS_UNITS, np.int64)
    scale = np.geomspace(0.2, 5.0, classes)[labels] if kind == "by class" else 1.0
    return np.minimum(rng.exponential(size=labels.shape) * scale * LOSS_UNITS, _LARGEST_LOSS).astype(np.int64)


def samples_until_bound_means_anything(rarest: float, capacity: int) -> int:
    """Labelled samples B from which on the paper's bound on failing to reach balance is below 5 %.

    The bound is v^(B−L) · Σ_{i≤L} C(B, i), with v = 1 − (probability of the rarest class): that is what v
    comes to when only that class is still short.

    Example:
        >>> samples_until_bound_means_anything(rarest=0.1, capacity=50)
        2348
    """

    def log_bound(samples: int) -> float:
        whole = math.lgamma(samples + 1)
        choose = [whole - math.lgamma(k + 1) - math.lgamma(samples - k + 1) for k in range(capacity + 1)]
        return (samples - capacity) * math.log1p(-rarest) + float(np.logaddexp.reduce(choose))

    low, high, failure = 2 * capacity, 4 * capacity, math.log(0.05)
    while log_bound(high) > failure:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if log_bound(middle) > failure else (low, middle)
    return high
