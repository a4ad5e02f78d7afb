"""How far annotators agree: Krippendorff's α for classes, with its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

DRAWS = 500  # of the units, with replacement, for the interval


def krippendorff_alpha(units: Sequence[Sequence[Hashable]]) -> float | None:
    """α = 1 − observed / expected disagreement; None where no two answers could have differed.

    Args:
        units: The answers that each image was given. Images with one answer say nothing.

    >>> krippendorff_alpha([["cat", "cat"], ["dog", "dog"]]), krippendorff_alpha([["cat", "cat"]])
    (1.0, None)
    """
    paired = [Counter(unit) for unit in units if len(unit) > 1]
    totals = sum(paired, Counter())
    answers = totals.total()
    expected = answers**2 - sum(count**2 for count in totals.values())
    if not expected:
        return None
    observed = sum(
        (unit.total() ** 2 - sum(count**2 for count in unit.values())) / (unit.total() - 1) for unit in paired
    )
    return float(1 - (answers - 1) * observed / expected)


def alpha_interval(units: Sequence[Sequence[Hashable]], seed: int = 0) -> tuple[float, float] | None:
    """The middle 95 % of α over images drawn with replacement; None where α is not known."""
    paired = [unit for unit in units if len(unit) > 1]
    if krippendorff_alpha(paired) is None:
        return None
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(paired), size=(DRAWS, len(paired))).tolist()
    found = (krippendorff_alpha([paired[place] for place in places]) for places in drawn)
    low, high = np.quantile([1.0 if alpha is None else alpha for alpha in found], [0.025, 0.975])
    return float(low), float(high)
