"""Which methods differ over data sets: ranks, exact Wilcoxon tests, Holm's correction.

Two methods are compared by Wilcoxon's signed-rank test over data sets, each pair by itself, and the p-values
of all pairs are corrected by Holm's procedure. This is recommended in place of the Nemenyi test, whose
verdict on two methods changes with the others in the table: Benavoli, Corani and Mangili, "Should We Really
Use Post-Hoc Tests Based on Mean-Ranks?", JMLR 17(5), 2016; García and Herrera, JMLR 9, 2008. Data sets are
what is counted (Demšar, JMLR 7, 2006): orders of one set share its images, so they are averaged first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVEL = 0.05


def ranks(scores: Floats) -> Floats:
    """Rank of each value in its row, 1 for the highest; equal ones share the mean of their ranks.

    >>> ranks(np.array([[0.5, 0.9, 0.5]])).tolist()
    [[2.5, 1.0, 2.5]]
    """
    higher = (scores[:, None, :] > scores[:, :, None]).sum(-1)
    equal = (scores[:, None, :] == scores[:, :, None]).sum(-1)
    return np.asarray(higher + (equal + 1) / 2)


def signed_rank_p(differences: Floats) -> float:
    """Two-sided p of Wilcoxon's signed-rank test, exact, with ties or without; differences of 0 are left out.

    Under the null each rank has either sign alike, so the distribution of the sum of those with a plus is
    counted rank by rank.

    >>> signed_rank_p(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    0.03125
    """
    left = differences[differences != 0]
    if not len(left):
        return 1.0
    doubled = np.rint(2 * ranks(-np.abs(left)[None])[0]).astype(int)  # whole numbers where ranks are shared
    ways = np.zeros(doubled.sum() + 1)
    ways[0] = 1.0
    for rank in doubled:
        ways[rank:] += ways[:-rank].copy()
    plus = doubled[left > 0].sum()
    least = min(plus, doubled.sum() - plus)
    return float(min(1.0, 2 * ways[: least + 1].sum() / ways.sum()))


def holm(ps: Sequence[float]) -> list[float]:
    """P-values of many tests, corrected by Holm's step-down procedure.

    >>> holm([0.01, 0.04, 0.02])
    [0.03, 0.04, 0.04]
    """
    corrected, largest = [0.0] * len(ps), 0.0
    for place, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[index]))
        corrected[index] = largest
    return corrected


@dataclass(frozen=True)
class Ranking:
    """Methods from the best mean rank to the worst.

    Attributes:
        methods: Their names.
        mean_ranks: Over all blocks, a block being one order of one data set.
        p: Corrected p of each pair of methods, by their names in this order.
        against: Corrected p of each method against the control, where only these are asked: fewer tests, so
            they find more.
        groups: First and last place of each longest row of methods of which no two differ.
        sets: Data sets that the tests are over.
    """

    methods: list[str]
    mean_ranks: list[float]
    p: dict[tuple[str, str], float]
    against: dict[str, float]
    groups: list[tuple[int, int]]
    sets: int

    @property
    def least(self) -> float:
        """The smallest corrected p that so many sets and methods allow."""
        return min(1.0, 2.0 ** (1 - self.sets) * max(len(self.p), 1))


def rank_methods(
    methods: Sequence[str], blocks: Sequence[tuple[str, Sequence[float]]], control: str = ""
) -> Ranking:
    """Rank methods and test which of them differ; all are tested against `control` as well.

    A block is one order of one data set: the set's name and the methods' scores, higher is better.
    """
    scores = np.array([values for _, values in blocks], np.float64)
    mean = ranks(scores).mean(0)
    order = sorted(range(len(methods)), key=lambda i: (mean[i], methods[i]))
    names = np.array([name for name, _ in blocks])
    by_set = np.stack([scores[names == name].mean(0) for name in dict.fromkeys(names.tolist())])
    placed = [methods[i] for i in order]
    pairs = list(combinations(placed, 2))
    column = dict(zip(methods, by_set.T, strict=True))
    raw = {(a, b): signed_rank_p(np.round(column[a] - column[b], 12)) for a, b in pairs}
    p = dict(zip(pairs, holm(list(raw.values())), strict=True))
    to_control = {a if b == control else b: value for (a, b), value in raw.items() if control in (a, b)}
    against = dict(zip(to_control, holm(list(to_control.values())), strict=True))
    return Ranking(placed, [float(mean[i]) for i in order], p, against, groups(placed, p), len(by_set))


def groups(methods: Sequence[str], p: dict[tuple[str, str], float]) -> list[tuple[int, int]]:
    """Longest rows of methods of which no two differ, by first and last place; a method alone is none."""
    found: list[tuple[int, int]] = []
    for first in range(len(methods)):
        last = first
        while last + 1 < len(methods) and all(
            p[methods[i], methods[last + 1]] >= LEVEL for i in range(first, last + 1)
        ):
            last += 1
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
