"""Ranks and tests against published numbers and against every way signs can fall."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.study.report.ranks import groups, holm, rank_methods, ranks, signed_rank_p

# Table 6 of Demšar, JMLR 7, 2006: AUC of C4.5 without and with two ways of tuning it, on 14 data sets. Of the
# two that are printed as .975 the first has the better rank there.
PUBLISHED = """
.763 .768 .771 .798  .599 .591 .590 .569  .954 .971 .968 .967  .628 .661 .654 .657  .882 .888 .886 .898
.936 .931 .916 .931  .661 .668 .609 .685  .583 .583 .563 .625  .775 .838 .866 .875  1. 1. 1. 1.
.940 .962 .965 .962  .619 .666 .614 .669  .972 .981 .9751 .975  .957 .978 .946 .970
"""


def test_mean_ranks_of_the_published_example() -> None:
    scores = np.array(PUBLISHED.split(), float).reshape(14, 4)
    assert ranks(scores).mean(0) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    made = rank_methods(["c45", "m", "cf", "m+cf"], [(str(i), row) for i, row in enumerate(scores.tolist())])
    assert made.methods == ["m+cf", "m", "cf", "c45"]
    assert made.sets == 14


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_signed_rank_p_is_the_share_of_signs_at_least_as_far(values: list[int]) -> None:
    differences = np.array(values, float)
    left = differences[differences != 0]
    if not len(left):
        assert signed_rank_p(differences) == 1.0
        return
    size = np.abs(left)
    rank = np.array([(size < one).sum() + ((size == one).sum() + 1) / 2 for one in size])
    middle = rank.sum() / 2
    seen = abs(rank[left > 0].sum() - middle)
    sums = [abs(float(np.dot(rank, signs)) - middle) for signs in product((0, 1), repeat=len(rank))]
    assert signed_rank_p(differences) == pytest.approx(np.mean([each >= seen - 1e-9 for each in sums]))


@pytest.mark.parametrize(("n", "w", "p"), [(10, 8, 0.0488), (12, 13, 0.0425), (20, 52, 0.0484)])
def test_signed_rank_p_of_the_printed_tables(n: int, w: int, p: float) -> None:
    """Critical values of W for two-sided 5 %: 8 of 10 pairs, 13 of 12, 52 of 20."""
    plus, left = [], w
    for rank in range(n, 0, -1):
        if rank <= left:
            plus.append(rank)
            left -= rank
    assert left == 0
    differences = np.array([rank if rank in plus else -rank for rank in range(1, n + 1)], float)
    assert signed_rank_p(differences) == pytest.approx(p, abs=5e-5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_as_the_procedure_says(ps: list[float]) -> None:
    corrected = holm(ps)
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for place, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
            if (len(ps) - place) * ps[index] > level:
                break
            rejected.add(index)
        assert {i for i, p in enumerate(corrected) if p <= level} == rejected


def test_orders_of_a_set_are_one_observation() -> None:
    """Seven sets on which a method is always better differ at p = 2/128, however many orders each has."""
    once = [(f"set {i}", [0.6 + i / 100, 0.5]) for i in range(7)]
    assert rank_methods(["a", "b"], once).p == {("a", "b"): 2 / 128}
    again = rank_methods(["a", "b"], once * 3)
    assert again.p == {("a", "b"): 2 / 128}
    assert (again.groups, again.mean_ranks) == ([], [1.0, 2.0])


def test_five_sets_can_never_tell_two_methods_apart() -> None:
    made = rank_methods(["a", "b"], [(str(i), [0.9, 0.1]) for i in range(5)])
    assert made.least == made.p["a", "b"] == 2 / 32
    assert made.groups == [(0, 1)]


def test_groups_are_the_longest_rows_without_a_difference() -> None:
    far = {("a", "c"), ("a", "d"), ("b", "d")}
    p = {(x, y): 0.01 if (x, y) in far else 0.5 for x, y in [*far, ("a", "b"), ("b", "c"), ("c", "d")]}
    assert groups(["a", "b", "c", "d"], p) == [(0, 1), (1, 2), (2, 3)]
    assert groups(["a", "b", "c", "d"], dict.fromkeys(p, 0.5)) == [(0, 3)]
    assert groups(["a", "b", "c", "d"], dict.fromkeys(p, 0.01)) == []
