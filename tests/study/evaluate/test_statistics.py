"""Intervals and tests against tables, plain sums and brute force; Krippendorff's α against his example."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.serve.opinions import alpha_interval, krippendorff_alpha
from taps.study.evaluate.statistics import (
    bootstrap_interval,
    compare,
    mcnemar,
    t_coverage,
    t_interval,
    t_quantile,
)


@pytest.mark.parametrize(
    ("df", "value"),
    [
        (1, 12.7062),
        (2, 4.3027),
        (3, 3.1824),
        (4, 2.7764),
        (7, 2.3646),
        (10, 2.2281),
        (29, 2.0452),
        (120, 1.9799),
    ],
)
def test_t_quantiles_of_the_printed_tables(df: int, value: float) -> None:
    assert t_quantile(df) == pytest.approx(value, abs=5e-5)


@pytest.mark.parametrize(("df", "level", "value"), [(1, 0.5, 1.0), (10, 0.5, 0.6998), (5, 0.99, 4.0321)])
def test_t_quantiles_of_other_levels(df: int, level: float, value: float) -> None:
    assert t_quantile(df, level) == pytest.approx(value, abs=5e-5)
    values = [float(i) for i in range(df + 1)]
    spread = math.sqrt(sum((v - df / 2) ** 2 for v in values) / df)
    mean, half = t_interval(values, level)
    assert mean == df / 2
    assert half == pytest.approx(value * spread / math.sqrt(df + 1), rel=1e-4)


def test_intervals_are_computed_in_double_precision() -> None:
    single = [np.float32(value) for value in (0.1, 0.7, 0.3)]
    assert t_interval(single) == t_interval([float(value) for value in single])


@given(st.integers(1, 40), st.floats(0.01, 8.0))
def test_t_coverage_is_the_integral_of_the_density(df: int, t: float) -> None:
    x = np.linspace(0, t, 4001)
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    density = np.exp(log_scale - (df + 1) / 2 * np.log1p(x**2 / df))
    assert t_coverage(t, df) == pytest.approx(2 * float(np.trapezoid(density, x)), abs=1e-6)


def test_t_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for sample in rng.normal(5.0, 2.0, size=(4000, 3)):
        mean, half = t_interval(sample.tolist())
        assert half is not None
        hits += abs(mean - 5.0) <= half
    assert hits / 4000 == pytest.approx(0.95, abs=0.012)


def test_one_seed_has_no_interval() -> None:
    assert t_interval([3.0]) == (3.0, None)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_binomial_sum(gained: int, lost: int) -> None:
    n = gained + lost
    tail = sum(math.comb(n, k) for k in range(min(gained, lost) + 1)) / 2**n
    assert mcnemar(gained, lost) == pytest.approx(min(1.0, 2 * tail))
    assert mcnemar(gained, lost) == mcnemar(lost, gained)


def test_mcnemar_of_thousands_does_not_underflow() -> None:
    p = mcnemar(2600, 2400)
    z = (200 - 1) / math.sqrt(5000)
    assert p == pytest.approx(math.erfc(z / math.sqrt(2)), rel=0.02)
    assert mcnemar(9000, 1000) >= 0.0


def test_bootstrap_matches_drawing_images_one_by_one() -> None:
    rng = np.random.default_rng(1)
    differences = rng.choice([-1.0, 0.0, 1 / 3, 1.0], p=[0.05, 0.7, 0.1, 0.15], size=400)
    low, high = bootstrap_interval(differences, np.ones(400), np.random.default_rng(2))
    means = [rng.choice(differences, size=400).mean() for _ in range(4000)]
    assert [low, high] == pytest.approx(np.quantile(means, [0.025, 0.975]).tolist(), abs=0.006)


@pytest.mark.parametrize(("level", "low", "high"), [(0.8, 0.4, 0.6), (0.95, 0.35, 0.65)])
def test_bootstrap_of_a_fair_coin_is_binomial(level: float, low: float, high: float) -> None:
    """Half of 40 images are 1: an end of the interval is where the binomial tail passes its level."""
    coin = np.repeat([0.0, 1.0], 20)
    tail = [sum(math.comb(40, k) for k in range(n + 1)) / 2**40 for n in range(41)]
    assert tail[round(40 * low) - 1] < (1 - level) / 2 < tail[round(40 * low)]
    found = bootstrap_interval(coin, np.ones(40), np.random.default_rng(0), level)
    assert found == pytest.approx((low, high))


def test_an_image_counts_once_however_many_seeds_saw_it() -> None:
    """Two images, each right under one seed and wrong under the other: drawn whole, nothing varies."""
    ones, zeros = np.ones(2), np.zeros(2)
    half = np.array([1.0, 0.0])
    keys = ["a", "b"]
    pair = compare([(keys, half, zeros), (keys, 1 - half, zeros)], np.random.default_rng(0))
    assert (pair.low, pair.high) == (0.5, 0.5)
    pair = compare([(keys, half, zeros), (keys[::-1], 1 - half, zeros)], np.random.default_rng(0))
    assert (pair.low, pair.high) == (0.0, 1.0)
    with pytest.raises(ValueError, match="longer"):
        compare([(["a"], ones, zeros)], np.random.default_rng(0))


def test_the_interval_over_images_is_of_the_difference_it_stands_beside() -> None:
    """Orders that were cut short share some images: each result counts, as it does in the difference."""
    rng, zeros = np.random.default_rng(4), np.zeros(300)
    keys = [[f"both {i}" for i in range(100)] + [f"{order} {i}" for i in range(200)] for order in (1, 2)]
    mine = np.repeat([1.0, 0.0], [100, 200])  # what both orders showed is all that was gained
    pair = compare([(names, mine, zeros) for names in keys], np.random.default_rng(0))
    assert pair.difference == pytest.approx(1 / 3)
    results = np.repeat([[2.0, 2.0], [0.0, 1.0]], [100, 400], axis=0)  # gained, and of how many results
    drawn = [results[rng.integers(0, 500, 500)].sum(axis=0) for _ in range(4000)]
    means = [gained / count for gained, count in drawn]
    assert [pair.low, pair.high] == pytest.approx(np.quantile(means, [0.025, 0.975]).tolist(), abs=0.006)


def test_comparison_counts_gains_and_losses() -> None:
    keys = ["a", "b", "c", "d"]
    mine, theirs = np.array([1.0, 1, 0, 1]), np.array([0.0, 1, 1, 0])
    pair = compare([(keys, mine, theirs), (keys[::-1], mine, mine)], np.random.default_rng(0))
    assert (pair.seeds, pair.gained, pair.lost) == (2, 2, 1)
    assert pair.difference == pytest.approx(0.125)
    assert pair.p == 1.0
    assert pair.low <= pair.difference <= pair.high
    assert pair.half == pytest.approx(12.7062 * 0.125, rel=1e-4)


def test_p_is_that_of_the_weakest_seed_and_not_of_all_thrown_together() -> None:
    """Six gains of six are p = 2/64; five gains and a loss 2·(1 + 6)/64; pooled they would be 26/4096."""
    keys, zeros, ones = [str(i) for i in range(6)], np.zeros(6), np.ones(6)
    all_but_one = np.array([1.0, 1, 1, 1, 1, 0])
    first, second = (keys, ones, zeros), (keys, all_but_one, 1 - all_but_one)
    for pairs, p in (([first], 2 / 64), ([second], 14 / 64), ([first, second], 14 / 64)):
        assert compare(pairs, np.random.default_rng(0)).p == pytest.approx(p)


def test_repeating_a_seed_does_not_make_the_images_interval_narrower() -> None:
    rng = np.random.default_rng(3)
    keys = [str(i) for i in range(300)]
    mine, theirs = (rng.integers(0, 2, 300).astype(float) for _ in range(2))
    once = compare([(keys, mine, theirs)], np.random.default_rng(0))
    often = compare([(keys, mine, theirs)] * 5, np.random.default_rng(0))
    assert (once.low, once.high) == (often.low, often.high)


# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", example C: four observers, nominal data.
OBSERVERS = (
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
)


def test_alpha_is_that_of_the_published_example() -> None:
    columns = zip(*(line.split() for line in OBSERVERS), strict=True)
    units = [[value for value in column if value != "."] for column in columns]
    assert krippendorff_alpha(units) == pytest.approx(0.743, abs=5e-4)


def test_answers_by_chance_have_an_alpha_of_0() -> None:
    rng = np.random.default_rng(0)
    assert krippendorff_alpha(rng.integers(3, size=(4000, 2)).tolist()) == pytest.approx(0.0, abs=0.04)


def test_the_interval_covers_the_alpha_of_many_images() -> None:
    rng, share, covered = np.random.default_rng(1), 0.8, []
    truth = 1 - (1 - share) * 1.0  # of two answers, one is drawn at random in 1 − share of the cases
    for _ in range(60):
        first = rng.integers(4, size=60)
        second = np.where(rng.random(60) < share, first, rng.integers(4, size=60))
        low, high = alpha_interval(np.stack([first, second], axis=1).tolist())
        covered.append(low <= truth <= high)
    assert np.mean(covered) >= 0.85


def test_one_answer_says_nothing() -> None:
    assert krippendorff_alpha([["cat"], ["dog"]]) is None
    assert alpha_interval([["cat"], ["cat", "cat"]]) is None
