"""A learner by river's manners: `predict_proba_one(x)`, `learn_one(x, y)`, where x is an image."""

from __future__ import annotations

import sys
from typing import Any

from taps.learner import Learner
from taps.types import Prediction


class RiverClassifier:
    """One image at a time. `predict_*` is the image's place in the stream, `learn_one` its answer.

    An image that is learned right after it was predicted (progressive validation) is seen once; one that was
    not predicted before is seen then.

    Args:
        learner: Does the work.

    Attributes:
        ask: Whether the learner would ask for the label of the last image.
    """

    _supervised = _multiclass = True  # what river asks of its classifiers

    def __init__(self, learner: Learner) -> None:
        if "river.base" in sys.modules:  # river's metrics and evaluations take what is one of its classifiers
            sys.modules["river.base"].Classifier.register(RiverClassifier)
        self.learner = learner
        self._last: tuple[Any, Prediction] | None = None

    def clone(self) -> RiverClassifier:
        """A fresh one of the same settings, as river's models have it."""
        return RiverClassifier(self.learner.clone())

    @property
    def ask(self) -> bool:
        return self._last is not None and self._last[1].ask

    def predict_proba_one(self, x: Any) -> dict[str, float]:
        """Probability of each class, by name."""
        probs = self._see(x).probs.tolist()
        return dict(zip(self.learner.classes, probs, strict=True))

    def predict_one(self, x: Any) -> str:
        """The likeliest class."""
        return self._see(x).label

    def learn_one(self, x: Any, y: str) -> None:
        """Take in the label of an image."""
        self.learner.learn_one(self._see(x).id, y)
        self._last = None

    def _see(self, x: Any) -> Prediction:
        if self._last is None or self._last[0] is not x:
            self._last = (x, self.learner.predict_one(x))
        return self._last[1]
