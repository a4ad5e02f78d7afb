"""What is on record: a stream's beginning, its events, its predictions. Plain values, no behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from taps.types import Answer

SILENT, OPEN, ANSWERED, SKIPPED, EXPIRED = "silent", "open", "answered", "skipped", "expired"
"""States of a prediction: not asked about; asked and waiting; and the three ways in which a question ends."""
CORRECTED = "corrected"
"""Not asked about, and labelled all the same."""
UNASKED, LABELLED = (SILENT, CORRECTED), (ANSWERED, CORRECTED)


@dataclass(frozen=True)
class Stream:
    """How a stream began.

    Attributes:
        id: Its number in the store, never used twice.
        name: What people call it.
        method: Of `taps methods`.
        classes: Names it began with; `classes` events add to them.
        settings: Of the method.
        seed: Every random choice follows from it.
        deadline: Seconds a question waits for its answer; None for ever.
        hold: Seconds a caller is made to wait for the expert where the order is ask_first.
        created: When, in seconds since 1970.
    """

    id: int
    name: str
    method: str
    classes: list[str]
    settings: dict[str, Any]
    seed: int
    deadline: float | None
    hold: float
    created: float


@dataclass(frozen=True)
class Event:
    """One thing that happened to a stream. The learner's state follows from these, in order, to the bit.

    Attributes:
        seq: 1, 2, 3, … within the stream.
        kind: predict, label, undo (an answer), skip, reopen (after a skip), expire, or classes.
        prediction: The id of the prediction it is about.
        value: label: the answer, as `plain` gives it; classes: the names added.
        who: Id of the token, or "expire" where the clock did it.
        at: When, in seconds since 1970.
        key: The caller's idempotency key.
        image: predict: the SHA-256 of the image, None where the file was lost.
        said: predict: label and entropy, as they are on record.
    """

    seq: int
    kind: str
    prediction: int | None
    value: Any
    who: str
    at: float
    key: str | None = None
    image: str | None = None
    said: tuple[str, float] | None = None


@dataclass(frozen=True)
class Row:
    """One prediction and what became of its question.

    The question is "which" class it is, or "is_it": whether it is the predicted one. An answer names the
    class (`answer`), or classes it is not of (`no`), or says that it is of `none`. `score` is what the
    threshold was compared with: the entropy, or what the method asks by.
    """

    id: int
    seq: int
    at: float
    image: str
    kept: bool
    name: str
    index: int
    label: str
    top: list[list[Any]]
    entropy: float
    threshold: float | None
    seconds: float
    state: str
    question: str = "which"
    deadline: float | None = None
    answer: str | None = None
    no: Sequence[str] = ()
    none: bool = False
    ended_by: str | None = None
    ended_at: float | None = None
    score: float | None = None


def plain(answer: Answer) -> dict[str, Any]:
    """An answer as the log holds it: what was said, and by whom."""
    values = {"label": answer.label, "no": list(answer.no), "none": answer.none, "expert": answer.expert}
    return {name: value for name, value in values.items() if value}


def answer_of(value: Any) -> Answer:
    """The answer that `plain` wrote; a text alone is a class."""
    if isinstance(value, str):
        return Answer(value)
    return Answer(**{**value, "no": tuple(value.get("no", ()))})
