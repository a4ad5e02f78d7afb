"""Active learning over a pool, by modAL's manners: `query`, `teach`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.adapters.sklearn import TapsClassifier
from taps.types import FloatArray


def entropy(probs: FloatArray) -> FloatArray:
    """Of each row, in nats."""
    found: FloatArray = -(probs * np.log(np.clip(probs, 1e-12, None))).sum(axis=1)
    return found


class PoolLearner:
    """Chooses images of a pool to be labelled, and learns their labels.

    Args:
        estimator: A classifier that knows its classes (`TapsClassifier().start([...])` at the least).
    """

    def __init__(self, estimator: TapsClassifier) -> None:
        self.estimator = estimator

    def query(
        self,
        X: Sequence[Any],  # noqa: N803
        n_instances: int = 1,
    ) -> tuple[NDArray[np.intp], list[Any]]:
        """The most uncertain images of a pool, the most uncertain first: their indices and themselves."""
        best = np.argsort(-entropy(self.estimator.predict_proba(X)), kind="stable")[:n_instances]
        return best, [X[index] for index in best]

    def teach(self, X: Iterable[Any], y: Iterable[str]) -> None:  # noqa: N803
        """Learn the labels of images."""
        self.estimator.partial_fit(X, y)

    def predict(self, X: Iterable[Any]) -> NDArray[np.str_]:  # noqa: N803
        """The likeliest class of each."""
        return self.estimator.predict(X)

    def predict_proba(self, X: Iterable[Any]) -> FloatArray:  # noqa: N803
        """Probabilities [images, classes]."""
        return self.estimator.predict_proba(X)

    def score(self, X: Iterable[Any], y: Iterable[str]) -> float:  # noqa: N803
        """Accuracy."""
        return self.estimator.score(X, y)
