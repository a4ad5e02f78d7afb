"""A stream and its events, as they are on record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StreamConfig:
    """How a stream begins.

    Attributes:
        classes: Names it begins with; CLASSES_ADDED events add to them.
        settings: Of the method.
        deadline: Seconds a question waits for its answer; None for ever.
        hold: Seconds a caller waits for the annotator where the order is ask_first.
    """

    name: str
    classes: list[str]
    method: str
    settings: dict[str, Any]
    seed: int
    deadline: float | None
    hold: float


@dataclass(frozen=True)
class Stream(StreamConfig):
    """A stream on record; its number is never used twice, its time is in seconds since 1970."""

    id: int
    created: float


@dataclass(frozen=True)
class Event:
    """An event of a stream. The learner's state follows from these, in order, to the bit.

    Attributes:
        seq: 1, 2, 3, … within the stream.
        kind: One of `taps.streams.log`.
        value: An answer in JSON, the names of new classes, or which predictions were accepted.
        who: Id of the token; "clock" or "learner" where a question expired.
        at: When, in seconds since 1970.
        key: The caller's idempotency key.
        image: Of a prediction: the SHA-256 of the image, None where the file was lost.
        said: Of a prediction: label and entropy, as they are on record.
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
