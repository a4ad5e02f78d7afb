"""Answers with classes by index, checked and completed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taps.errors import QueryError
from taps.model.prompts.classes import class_index
from taps.types import Answer


def normalise_answer(
    answer: Answer, classes: Sequence[str], before: Answer | None = None, *, labels_only: str | None = None
) -> Answer:
    """An answer with classes by index; an image of no class but one is of that one.

    Args:
        answer: With classes by name or index.
        classes: Class names.
        before: An earlier answer for the same image; classes that it is not of add up.
        labels_only: Name of the method where it learns from labels alone.

    >>> normalise_answer(Answer(no=("cat",)), ["cat", "dog"])
    Answer(label=1, no=(), none=False, unknown=False, annotator='')
    """
    if not isinstance(answer.annotator, str):
        raise QueryError(f"The annotator is {answer.annotator!r}; give a name.")
    excluded = _several(answer.no)
    if (answer.label is not None) + bool(excluded) + bool(answer.none) > 1:
        raise QueryError("Give one of label, no= (classes it is not of) and none=True.")
    if not excluded and not answer.none:
        return Answer(class_index(classes, answer.label), annotator=answer.annotator)  # type: ignore[arg-type]
    if labels_only is not None:
        raise QueryError(
            f"{labels_only!r} learns from labels alone; methods with a head, such as "
            "'view_ensemble+', take other answers."
        )
    if answer.none:
        return Answer(none=True, annotator=answer.annotator)
    out = {class_index(classes, each) for each in excluded} | set(before.no if before else ())
    left = set(range(len(classes))) - out
    if not left:
        raise QueryError("All classes are excluded; for an image of no class give none=True.")
    if len(left) == 1:
        return Answer(left.pop(), annotator=answer.annotator)
    return Answer(no=tuple(sorted(out)), annotator=answer.annotator)  # type: ignore[type-var]


def _several(no: object) -> tuple[Any, ...]:
    """One class, or several, as a tuple."""
    return tuple(no) if isinstance(no, Sequence | np.ndarray) and not isinstance(no, str) else (no,)
