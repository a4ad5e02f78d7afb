"""Several learners on one device, or a backlog of one: images that are predicted together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from torch import Tensor

from taps.errors import QueryError
from taps.methods import Method
from taps.methods.base import predict_batch
from taps.model.images.decode import load_image
from taps.model.images.views import make_views_of, sample_generator
from taps.types import PixelArray, Prediction

if TYPE_CHECKING:
    from taps.learner.learner import Learner

BACKLOG_IMAGES = 64  # images of a backlog that are looked at before the first of them is predicted
VIEWED = 4  # images whose views are made at once; meanwhile the host draws the next ones' crops


class Pool:
    """Learners of one process, by name. Those of one model and the same start are computed as one batch.

    Answers go to the learner itself: `pool["gate 4"].learn_one(prediction.id, "cat")`.

    Args:
        learners: By name; or in a row, named 0, 1, 2 and so on.

    >>> import numpy as np, taps
    >>> clip, black = taps.load_clip("tiny"), np.zeros((40, 30, 3), np.uint8)
    >>> pool = Pool([taps.Learner(clip, ["cat", "dog"], "zero_shot+") for _ in range(3)])
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


def predict_together(
    images: Sequence[tuple[Learner, Any]], put_back: Callable[[], None] | None = None
) -> list[Prediction]:
    """Predict images of several learners in one batch, each image given with its learner.

    A learner may have several: it predicts them in the order given. Where an image cannot be decoded,
    `ImageError` is raised and no learner is changed. `put_back` is called after each image; where it is
    given, each is predicted as the learner's next one.
    """
    with ExitStack() as turns:
        for learner in sorted({learner for learner, _ in images}, key=id):  # in one order for every thread
            turns.enter_context(learner._turn)
        return _predict_together(images, put_back)


def _predict_together(
    images: Sequence[tuple[Learner, Any]], put_back: Callable[[], None] | None
) -> list[Prediction]:
    began = time.perf_counter()
    found: list[Prediction] = []
    decoded: Iterator[PixelArray] = (load_image(image, copy=False) for _, image in images)
    while len(found) < len(images):
        learners = [learner for learner, _ in images[len(found) : len(found) + BACKLOG_IMAGES]]
        predict = predict_batch(_look_at(learners, decoded, step=int(put_back is None)))
        decoded = iter([*decoded])  # while a GPU computes; only when all could be is something concluded
        for learner, one in zip(learners, predict, strict=True):
            found.append(learner.desk.conclude(one(), began))
            if put_back is not None:
                put_back()
    seconds = (time.perf_counter() - began) / max(1, len(found))
    return [replace(each, seconds=seconds) for each in found]


def _look_at(
    learners: Sequence[Learner], images: Iterator[PixelArray], step: int
) -> Iterator[tuple[Method, Tensor]]:
    """An image for each learner: its method and the views; `step` from the id of one image to the next."""
    ids = {id(learner): learner.seen for learner in learners}
    pairs = zip(learners, images, strict=False)
    for settings, alike in groupby(pairs, key=lambda pair: pair[0]._view_settings):
        while part := list(islice(alike, VIEWED)):
            generators = []
            for learner, _ in part:
                generators.append(sample_generator(learner.seed, ids[id(learner)]))
                ids[id(learner)] += step
            made = make_views_of([pixels for _, pixels in part], generators, **settings)
            yield from zip((learner.method for learner, _ in part), made, strict=True)
