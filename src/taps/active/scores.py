"""Scores of one image, higher where its label is wanted more. At most a matrix–vector product each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from taps.active.decision import check_count

Array = NDArray[np.float64]


def entropy(probs: Array) -> float:
    """Entropy in nats.

    >>> round(entropy(np.array([0.5, 0.5])), 4)
    0.6931
    """
    positive = probs[probs > 0]
    return float(-(positive * np.log(positive)).sum())


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


class Recent:
    """The last images' features, to tell a typical image from an outlier.

    Args:
        dim: Length of a feature.
        size: How many images are remembered.
        neighbours: To how many of the nearest an image is compared.
    """

    def __init__(self, dim: int, size: int = 256, neighbours: int = 10) -> None:
        self.size, self.neighbours = check_count("size", size), check_count("neighbours", neighbours)
        self.features: Array = np.zeros((size, dim))
        self.seen = 0

    @property
    def held(self) -> Array:
        return self.features[: min(self.seen, self.size)]

    def density(self, x: Array) -> float:
        """Mean cosine to the nearest of the last images, seen from their centre; 0 while there are none.

        Features of one model all lie in a narrow cone: from the origin every image looks like every other.
        """
        held = self.held
        if len(held) == 0:
            return 0.0
        centre = held.mean(axis=0)
        away, others = x - centre, held - centre
        lengths = np.linalg.norm(others, axis=1) * np.linalg.norm(away)
        likeness = others @ away / np.maximum(lengths, 1e-12)
        nearest = min(self.neighbours, len(held))
        return float(np.partition(likeness, -nearest)[-nearest:].mean())

    def add(self, x: Array) -> None:
        """Remember one more image, and forget the oldest."""
        self.features[self.seen % self.size] = x
        self.seen += 1
