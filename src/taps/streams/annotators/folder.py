"""The annotator of a labelled data set: the true labels."""

from __future__ import annotations

from collections.abc import Callable

from taps.streams.annotators.base import Annotator, Context, Reply, annotator, true_labels
from taps.types import Answer, Query


@annotator("folder", by_labels=True)
def folder(context: Context) -> Annotator:
    return true_labels(context)


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
