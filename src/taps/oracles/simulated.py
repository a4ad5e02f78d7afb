"""Simulated annotators: the true labels, with errors at a rate, after a delay."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from taps.errors import SettingsError
from taps.oracles.base import Oracle, Reply, is_repeatable
from taps.types import Answer, Query


class GroundTruth:
    """Answers with the true label.

    Args:
        labels: The label of a sample, or another `Reply`, by its id. It is called when a question is asked,
            never before, so that the caller can watch when labels are read.

    >>> from taps.types import Query
    >>> GroundTruth({0: 4}.get).answer(Query(0, "image.jpg", None))
    4
    """

    repeatable = True

    def __init__(self, labels: Callable[[int], Reply | None]) -> None:
        self.labels = labels

    def answer(self, query: Query) -> Reply | None:
        label = self.labels(query.id)
        if query.yes_no is None or label == query.yes_no:
            return label
        is_another = isinstance(label, int) or (isinstance(label, Answer) and label.none)
        return Answer(no=(query.yes_no,)) if is_another else label


class Noisy:
    """Gives a wrong class, any of the others with equal chance, at a seeded rate; yes for no and no for yes.

    Whether and how it errs depends on the seed and the sample alone, so that a resumed stream meets the same
    errors.

    Args:
        inner: The oracle whose answers are noisy; they must be class indices.
        rate: Share of answers that are wrong, 0 to 1.
        classes: Number of classes.
        seed: Which answers are wrong, and how.
    """

    def __init__(self, inner: Oracle, rate: float, classes: int, seed: int = 0) -> None:
        if not 0.0 <= rate <= 1.0:
            raise SettingsError(f"An error rate of {rate} is not possible; use 0 to 1.")
        if classes < 2:
            raise SettingsError(f"An annotator can err among at least two classes, not among {classes}.")
        self.inner, self.rate, self.classes, self.seed = inner, rate, classes, seed

    @property
    def repeatable(self) -> bool:
        return is_repeatable(self.inner)

    def answer(self, query: Query) -> Reply | None:
        answer = self.inner.answer(query)
        said_no = query.yes_no is not None and answer == Answer(no=(query.yes_no,))
        if not (isinstance(answer, int) or said_no):
            return answer
        rng = np.random.default_rng([self.seed, query.id])
        if rng.random() >= self.rate:
            return answer
        if query.yes_no is not None:
            return query.yes_no if said_no else Answer(no=(query.yes_no,))
        assert isinstance(answer, int)
        return int(answer + rng.integers(1, self.classes)) % self.classes


class Delayed:
    """Answers when `delay` more images have been seen.

    Args:
        inner: The oracle that answers.
        delay: Number of images between question and answer; 0 answers at once.
    """

    def __init__(self, inner: Oracle, delay: int) -> None:
        if delay < 0:
            raise SettingsError(f"A delay of {delay} images is not possible; use 0 or more.")
        self.inner, self.delay = inner, delay
        self.waiting: OrderedDict[int, Query] = OrderedDict()

    @property
    def repeatable(self) -> bool:
        return is_repeatable(self.inner)

    def answer(self, query: Query) -> Reply | None:
        if self.delay == 0:
            return self.inner.answer(query)
        self.waiting[query.id] = query
        return None

    def due(self, seen: int) -> list[tuple[int, Reply]]:
        """Answers to questions about images at least `delay` before the last of the `seen` ones."""
        ripe = [id for id in self.waiting if id + self.delay < seen]
        answers = [(id, self.inner.answer(self.waiting.pop(id))) for id in ripe]
        return [(id, answer) for id, answer in answers if answer is not None]
