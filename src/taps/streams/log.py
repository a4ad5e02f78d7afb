"""The kinds of events in the log of a run and of the service, and what each does to a learner."""

from __future__ import annotations

from typing import Any

from taps.learner.learns import Learns
from taps.types import Answer

PREDICTED, ANSWERED, SKIPPED, UNDONE, EXPIRED = "predicted", "answered", "skipped", "undone", "expired"
"""An image was predicted; its question ended, or its end was taken back."""
ASKED, ACCEPTED = "asked", "accepted"
"""A question about an image came later; predictions were accepted as they are."""
DRAWN = "drawn"  # value of `ASKED`: the image was drawn at random
REPEATED = "repeated"  # an answer that changed nothing; the log keeps its idempotency key
OPINION = "opinion"  # another person's answer to an answered question; nothing is learned from it
CLASSES_ADDED, UNREADABLE, UNDO_FAILED = "classes_added", "unreadable", "undo_failed"


def apply(learner: Learns, kind: str, id: int | None, value: Any = None) -> Any:
    """Apply an event to a learner, when it happens or when a log is replayed; what the learner returns.

    Args:
        learner: Learns or forgets.
        kind: Of the event; kinds that are not about the learner's state change nothing.
        id: Of the prediction.
        value: The answer, the names of the new classes, or that an image was drawn.
    """
    if kind == CLASSES_ADDED:
        return learner.add_class(value)
    if id is None:
        return None
    if kind == ANSWERED:
        return learner.learn_one(id, value)
    if kind == ASKED:
        return learner.ask(id, value == DRAWN)
    if kind == SKIPPED:
        return learner.skip(id)
    return learner.undo(id) if kind == UNDONE else None


def kind_of(answer: Answer) -> str:
    """The event of an answer: "I don't know" skips the question."""
    return SKIPPED if answer.unknown else ANSWERED
