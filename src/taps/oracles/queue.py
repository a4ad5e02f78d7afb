"""Questions that wait for people, while the stream goes on."""

from __future__ import annotations

import threading
from collections import OrderedDict

from taps.errors import QueryError, SettingsError
from taps.oracles.base import Reply
from taps.types import Answer, Query

Given = tuple[int, Reply]


class PeopleQueue:
    """A list of open questions that other threads answer, in any order.

    Args:
        capacity: Open questions at one time; the oldest is dropped for a new one.

    >>> queue = PeopleQueue()
    >>> queue.answer(Query(7, "image.jpg", None))
    >>> queue.give(7, "dog")
    >>> queue.due(8)
    [(7, 'dog')]
    """

    def __init__(self, capacity: int = 1000) -> None:
        if capacity < 1:
            raise SettingsError(f"A queue of {capacity} questions is asked for; use 1 or more.")
        self.capacity = capacity
        self.dropped = 0
        self._open: OrderedDict[int, Query] = OrderedDict()
        self._given: list[Given] = []
        self._lock = threading.Lock()

    def answer(self, query: Query) -> None:
        """Put the question; the answer comes with `due`, if ever."""
        with self._lock:
            self._open[query.id] = query
            while len(self._open) > self.capacity:
                self._open.popitem(last=False)
                self.dropped += 1

    def open(self) -> list[Query]:
        """The questions that nobody has answered, the oldest first."""
        with self._lock:
            return list(self._open.values())

    def give(self, id: int, label: Reply) -> None:
        """A person's answer to an open question."""
        with self._lock:
            if id not in self._open:
                raise QueryError(
                    f"No question about sample {id} is open; it was answered, skipped or dropped."
                )
            del self._open[id]
            self._given.append((id, label))

    def skip(self, id: int) -> None:
        """A person does not know: that is passed on, so that the question goes back to the budget."""
        with self._lock:
            if self._open.pop(id, None) is not None:
                self._given.append((id, Answer(unknown=True)))

    def due(self, seen: int) -> list[Given]:
        """Answers given since the last time, in the order they were given."""
        with self._lock:
            given, self._given = self._given, []
            return given
