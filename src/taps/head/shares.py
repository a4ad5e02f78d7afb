"""Which classes the last answers were of: some streams come class after class, or are of one class mostly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
UNSEEN = 0.5  # answers that are taken for given, spread evenly over all classes


class ClassShares:
    """Answers of each class; with every answer the older ones count less.

    The share of a class is (n_c + a/K) / (Σ n + a), a being `UNSEEN` and n_c its answers, each worth
    γ^(answers since). The mixture adds κ times the shares' logarithms to a prediction, and finds out by the
    answers whether that helps.

    Args:
        classes: K.
        fading: Factors γ on older answers.
        strengths: Factors κ.

    Example:
        >>> shares = ClassShares(classes=2, fading=(0.5,), strengths=(1.0,))
        >>> shares.learn(0)
        >>> np.exp(shares.logits(2)).round(3).tolist()
        [[0.833, 0.167]]
    """

    def __init__(self, classes: int, fading: tuple[float, ...], strengths: tuple[float, ...]) -> None:
        self.fading: Array = np.array(fading)[:, None]
        self.strengths: Array = np.array(strengths)[:, None, None]
        self.answers: Array = np.zeros((len(fading), classes))

    def learn(self, label: int) -> None:
        """Take in an answer."""
        self.answers = self.answers * self.fading + np.eye(self.answers.shape[1])[label]

    def logits(self, classes: int, answers: Array | None = None) -> Array:
        """What to add to the first so many classes' logits, for every κ with every γ [κ · γ, K].

        Args:
            classes: K; fewer than now for an image that was seen before some were added.
            answers: Of each class, in place of those that fade [K or more].
        """
        held = self.answers if answers is None else np.broadcast_to(answers, self.answers.shape)
        held = held[:, :classes]
        logs = np.log((held + UNSEEN / classes) / (held.sum(axis=1, keepdims=True) + UNSEEN))
        added: Array = (self.strengths * logs).reshape(-1, classes)
        return added
