"""An annotator that errs at a rate."""

from __future__ import annotations

import numpy as np

from taps.errors import SettingsError
from taps.streams.annotators.base import Annotator, Context, Reply, annotator, is_repeatable, true_labels
from taps.types import Answer, Query


@annotator("noisy", by_labels=True)
def noisy(context: Context, *, rate: float = 0.1, seed: int = 0) -> Annotator:
    return Noisy(true_labels(context), rate, len(context.learner.classes), seed)


class Noisy:
    """Gives a wrong class, any of the others with equal chance, at a seeded rate; yes for no and no for yes.

    Whether and how it errs depends on the seed and the sample alone, so that a resumed stream meets the same
    errors.

    Args:
        inner: The annotator whose answers are noisy; they must be class indices.
        rate: Share of answers that are wrong, 0 to 1.
        classes: Number of classes.
        seed: Which answers are wrong, and how.
    """

    def __init__(self, inner: Annotator, rate: float, classes: int, seed: int = 0) -> None:
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
