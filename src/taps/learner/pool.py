"""Many streams on one device: learners whose images are predicted together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from taps.errors import QueryError
from taps.learner.learner import Learner, predict_together
from taps.types import Prediction


class Pool:
    """Learners of one process, by name. Those of one model and the same start are computed as one batch.

    Answers go to the learner itself: `pool["gate 4"].learn_one(prediction.id, "cat")`.

    Args:
        learners: By name; or in a row, named 0, 1, 2 and so on.

    >>> import numpy as np, taps
    >>> clip, black = taps.load_clip("tiny"), np.zeros((40, 30, 3), np.uint8)
    >>> pool = Pool([Learner(clip, ["cat", "dog"], "zero_shot+") for _ in range(3)])
    >>> [prediction.id for prediction in pool.predict([(0, black), (1, black), (1, black)])]
    [0, 0, 1]
    """

    def __init__(self, learners: Mapping[Any, Learner] | Sequence[Learner]) -> None:
        named = learners.items() if isinstance(learners, Mapping) else enumerate(learners)
        self.learners: dict[Any, Learner] = dict(named)

    def __getitem__(self, name: Any) -> Learner:
        if name not in self.learners:
            raise QueryError(f"The pool has no learner named {name!r}; it has {len(self.learners)} others.")
        return self.learners[name]

    def predict(self, images: Iterable[tuple[Any, Any]]) -> list[Prediction]:
        """What each learner's `predict_one` says of its images, in the order given.

        Args:
            images: Pairs of a learner's name and an image. A learner may have several; no answer can come in
                between. Where an image cannot be decoded, `ImageError` is raised and nothing has changed.
        """
        return predict_together([(self[name], image) for name, image in images])
