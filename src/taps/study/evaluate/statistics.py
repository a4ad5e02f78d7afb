"""Intervals over seeds, paired comparisons over images. Numpy only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RESAMPLES = 10_000


def t_quantile(df: int, level: float = 0.95) -> float:
    """Half-width factor of a two-sided interval: P(|T| ≤ factor) = level for Student's t.

    >>> round(t_quantile(2), 3)
    4.303
    """
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_coverage(middle, df) < level else (low, middle)
    return (low + high) / 2


def t_coverage(t: float, df: int) -> float:
    """P(|T| ≤ t) for Student's t with whole degrees of freedom, by its finite trigonometric series."""
    angle = math.atan(t / math.sqrt(df))
    cosine = math.cos(angle)
    odd = df % 2 == 1
    term, total = cosine if odd else 1.0, 0.0
    for k in range(1, df // 2 + 1):
        total += term
        term *= (2 * k / (2 * k + 1) if odd else (2 * k - 1) / (2 * k)) * cosine**2
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float | None]:
    """Mean and half-width of its interval over independent runs; None for one run.

    >>> mean, half = t_interval([1.0, 2.0, 3.0])
    >>> round(mean, 2), round(half, 2)
    (2.0, 2.48)
    """
    data = np.asarray(values, np.float64)
    if len(data) < 2:
        return float(data.mean()), None
    half = t_quantile(len(data) - 1, level) * data.std(ddof=1) / math.sqrt(len(data))
    return float(data.mean()), float(half)


def bootstrap_interval(
    sums: Floats, counts: Floats, rng: np.random.Generator, level: float = 0.95, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Percentile interval of the mean over results when images are drawn again with replacement.

    Differences of right and wrong take few distinct values, so it is enough to draw how often each appears.
    `sums` has the sum of each image's results, `counts` their number.
    """
    kinds, often = np.unique(np.stack([sums, counts], axis=1), axis=0, return_counts=True)
    drawn = rng.multinomial(len(sums), often / len(sums), size=resamples) @ kinds
    means = drawn[:, 0] / drawn[:, 1]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p of McNemar's test: are gains and losses equally likely?

    >>> round(mcnemar(8, 1), 4)
    0.0391
    """
    total, least = gained + lost, min(gained, lost)
    logs = [
        math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) - total * math.log(2)
        for k in range(least + 1)
    ]
    top = max(logs)
    return min(1.0, 2 * math.exp(top) * math.fsum(math.exp(value - top) for value in logs))


@dataclass(frozen=True)
class Paired:
    """A method against a baseline on the same images in the same order.

    Attributes:
        seeds: Runs that both have.
        difference: Mean difference in accuracy.
        half: Half-width of its t-interval over seeds; None for one seed.
        low: Lower end of the bootstrap interval over images; `high` is the upper end.
        gained: Images that only the method got right, over all seeds; `lost`: only the baseline.
        p: McNemar's p, the largest of the seeds: runs over the same images are not independent.
    """

    seeds: int
    difference: float
    half: float | None
    low: float
    high: float
    gained: int
    lost: int
    p: float


def compare(pairs: Sequence[tuple[Sequence[str], Floats, Floats]], rng: np.random.Generator) -> Paired:
    """Compare over seeds; for each: the images' keys, the method's and the baseline's hits (0 or 1)."""
    differences = [mine - theirs for _, mine, theirs in pairs]
    gained = [int((d > 0).sum()) for d in differences]
    lost = [int((d < 0).sum()) for d in differences]
    mean, half = t_interval([float(d.mean()) for d in differences])
    # An image seen under several seeds is one image: it is drawn with all its results or not at all.
    total: dict[str, list[float]] = {}
    for keys, mine, theirs in pairs:
        for key, value in zip(keys, (mine - theirs).tolist(), strict=True):
            total.setdefault(key, []).append(value)
    sums, counts = np.array([(sum(found), len(found)) for found in total.values()], np.float64).T
    low, high = bootstrap_interval(sums, counts, rng)
    p = max(map(mcnemar, gained, lost))
    return Paired(len(pairs), mean, half, low, high, sum(gained), sum(lost), p)
