"""Scores of images, higher where a label is wanted more. At most a matrix–vector product for each image."""

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


def novelty(features: Array, known: Array) -> Array:
    """How unlike images are to those that are known: one less the highest cosine, 1 where none is known [N].

    Args:
        features: Of length 1 [N, d].
        known: Of length 1 [M, d].

    >>> novelty(np.eye(2), np.array([[0.6, 0.8]])).round(2).tolist()
    [0.4, 0.2]
    """
    if not len(known) or not len(features):
        return np.ones(len(features))
    likeness: Array = np.clip(features @ known.T, 0.0, 1.0).max(axis=1)
    return 1.0 - likeness


def scarcity(probs: Array, counts: Array) -> float:
    """How few labels the likely classes have: the expected 1 / (1 + labels of its class).

    >>> scarcity(np.array([0.5, 0.5]), np.array([0.0, 3.0]))
    0.625
    """
    return float((probs / (1.0 + counts)).sum())


def gradient_leverage(probs: Array, leverage: float) -> float:
    """How new the gradient of the likeliest class is to the labels: VeSSAL's rule.

    The gradient of a linear head is (p − e_ŷ) ⊗ x; with the labelled images' Gram matrix alike for each
    class, g'A⁻¹g is |p − e_ŷ|² times the leverage of x. The policy turns it into questions at a rate.

    Args:
        probs: Prediction of the image [K].
        leverage: x'A⁻¹x.

    >>> round(gradient_leverage(np.array([0.75, 0.25]), leverage=2.0), 4)
    0.25
    """
    off = probs.copy()
    off[probs.argmax()] -= 1.0
    return float(off @ off) * leverage


def belief_drift(probs: Array, before: Array) -> float:
    """How far answers have moved a prediction: |p − p₀|, as WISE-ATTA compares a model with a slower one.

    Args:
        probs: Prediction of the image [K].
        before: The same without any answer [K].

    >>> round(belief_drift(np.array([0.9, 0.1]), np.array([0.6, 0.4])), 4)
    0.4243
    """
    return float(np.linalg.norm(probs - before))
