"""What is on record: a stream's beginning, its events, its predictions. Plain values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
        value: label: the class; classes: the names added.
        who: Id of the token, or "expire" where the clock did it.
        at: When, in seconds since 1970.
        key: The caller's idempotency key.
        image: predict: the SHA-256 of the image, None where the file was lost.
    """

    seq: int
    kind: str
    prediction: int | None
    value: Any
    who: str
    at: float
    key: str | None = None
    image: str | None = None


@dataclass(frozen=True)
class Row:
    """One prediction and what became of its question."""

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
    deadline: float | None = None
    answer: str | None = None
    ended_by: str | None = None
    ended_at: float | None = None
