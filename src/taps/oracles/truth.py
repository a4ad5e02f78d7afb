"""The oracle of every table: it knows the right label, and reads it only when it is asked."""

from __future__ import annotations

from collections.abc import Callable

from taps.oracles.base import Reply
from taps.types import Answer, Query


class GroundTruth:
    """Answers with the true label.

    Args:
        labels: Gives the label of a sample, or what else is to be said of it, by its id. It is called when a
            question is put and never before, so that whoever provides it can watch when labels are read.

    >>> from taps.types import Query
    >>> GroundTruth({0: 4}.get).answer(Query(0, "image.jpg", None))
    4
    """

    repeatable = True

    def __init__(self, labels: Callable[[int], Reply | None]) -> None:
        self.labels = labels

    def answer(self, query: Query) -> Reply | None:
        said = self.labels(query.id)
        if query.yes_no is None or said == query.yes_no:
            return said
        is_another = isinstance(said, int) or (isinstance(said, Answer) and said.none)
        return Answer(no=(query.yes_no,)) if is_another else said
