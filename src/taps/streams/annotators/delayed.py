"""An annotator that answers when more images have passed."""

from __future__ import annotations

from collections import OrderedDict

from taps.errors import SettingsError
from taps.streams.annotators.base import Annotator, Context, Reply, annotator, is_repeatable, true_labels
from taps.types import Query


@annotator("delayed", by_labels=True)
def delayed(context: Context, *, delay: int = 10) -> Annotator:
    return Delayed(true_labels(context), delay)


class Delayed:
    """Answers when `delay` more images have been seen.

    Args:
        inner: The annotator that answers.
        delay: Number of images between question and answer; 0 answers at once.
    """

    def __init__(self, inner: Annotator, delay: int) -> None:
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
