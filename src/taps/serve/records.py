"""What is on record of a stream: its beginning, its events. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StreamConfig:
    """How a stream begins.

    Attributes:
        name: What people call it.
        classes: Names it begins with; CLASSES_ADDED events add to them.
        method: Of `taps methods`.
        settings: Of the method.
        seed: Seed of every random choice.
        deadline: Seconds a question waits for its answer; None for ever.
        hold: Seconds a caller is made to wait for the annotator where the order is ask_first.
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
    """A stream on record.

    Attributes:
        id: Its number in the store, never used twice.
        created: When, in seconds since 1970.
    """

    id: int
    created: float


@dataclass(frozen=True)
class Event:
    """One thing that happened to a stream. The learner's state follows from these, in order, to the bit.

    Attributes:
        seq: 1, 2, 3, … within the stream.
        kind: One of `taps.session.log`.
        prediction: The id of the prediction it is about.
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
