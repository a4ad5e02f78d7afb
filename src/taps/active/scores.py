"""Scores of one image, higher where its label is wanted more. At most a matrix–vector product each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def narrowness(probs: Array) -> float:
    """One less the margin between the two likeliest classes: 1 where they are as likely as each other.

    >>> round(narrowness(np.array([0.1, 0.6, 0.3])), 4)
    0.7
    """
    second, first = np.partition(probs, -2)[-2:]
    return float(1.0 - (first - second))


def scarcity(probs: Array, counts: Array) -> float:
    """How few labels the likely classes have: the expected 1 / (1 + labels of its class).

    >>> scarcity(np.array([0.5, 0.5]), np.array([0.0, 3.0]))
    0.625
    """
    return float((probs / (1.0 + counts)).sum())
