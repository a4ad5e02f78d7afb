"""The words of both logs, a run's and the service's, and what each event does to a learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from taps.types import Answer

PREDICTED, ANSWERED, SKIPPED, UNDONE, EXPIRED = "predicted", "answered", "skipped", "undone", "expired"
"""An image was predicted; its question ended, or its end was taken back."""
ASKED, ACCEPTED = "asked", "accepted"
"""About an image that nobody was asked about when it came; predictions that are taken as they are."""
DRAWN = "drawn"
"""At random: what is on record beside `ASKED`."""
REPEATED = "repeated"
"""An answer that changed nothing: it is on record for its idempotency key."""
OPINION = "opinion"
"""What another person said of an answered question; nothing is learned from it."""
CLASSES_ADDED, UNREADABLE, UNDO_FAILED = "classes_added", "unreadable", "undo_failed"


class Learns(Protocol):
    """A learner, or what stands for one."""

    def learn_one(self, id: int, label: Answer) -> None: ...
    def ask(self, id: int, drawn: bool = False) -> None: ...
    def skip(self, id: int) -> None: ...
    def undo(self, id: int) -> Any: ...
    def add_class(self, names: Sequence[str]) -> None: ...


def apply(learner: Learns, kind: str, id: int | None, value: Any = None) -> Any:
    """Let a learner live through an event, when it happens or when a log is replayed; what it returns.

    Args:
        learner: Learns or forgets.
        kind: Of the event; one that is not about the learner's state changes nothing.
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
    if kind in (SKIPPED, UNDONE):
        return learner.skip(id) if kind == SKIPPED else learner.undo(id)
    return None


def kind_of(answer: Answer) -> str:
    """The event that an answer is: who does not know skips the question."""
    return SKIPPED if answer.unknown else ANSWERED
