"""Leases: a question shown to one annotator is not shown to another for a while."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

PATIENCE = 120.0  # seconds until a lease that is not renewed ends
AWAY = 5.0  # the same once the page has disconnected: it may come back


class Leases:
    """Questions held by annotators' pages, in memory: after a restart every question is free.

    Attributes:
        lock: Hold it from reading which questions are open until `take` returns: an older list could hold a
            question that another annotator has answered meanwhile.
    """

    def __init__(self, patience: float = PATIENCE, clock: Callable[[], float] = time.time) -> None:
        self.patience, self.clock = patience, clock
        self._held: dict[int, dict[int, tuple[str, float]]] = {}
        self._listening: Counter[tuple[int, str]] = Counter()  # connections of each holder's page
        self.lock = threading.RLock()

    def take(
        self, stream: int, holder: str, open: Sequence[int], count: int, first: int | None = None
    ) -> dict[int, float]:
        """Let a page hold `count` of the open questions, given in order; return when each lease ends.

        Its own questions come before free ones, and `first` before all, if it is its own or free. Those that
        it held beyond `count` are given back.
        """
        with self.lock:
            now = self.clock()
            before = self._held.get(stream, {})
            held = {id: before[id] for id in open if id in before and before[id][1] > now}
            mine = [id for id in open if id in held and held[id][0] == holder]
            free = [id for id in open if id not in held]
            wanted = sorted(mine + free, key=lambda id: (id != first, id not in held))[:count]
            others = {id: lease for id, lease in held.items() if lease[0] != holder}
            self._held[stream] = others | dict.fromkeys(wanted, (holder, now + self.patience))
            return dict.fromkeys(wanted, now + self.patience)

    @contextmanager
    def listening(self, stream: int, holder: str) -> Iterator[None]:
        """While a page is connected. Once it is not, for whatever reason, its leases end soon."""
        with self.lock:
            self._listening[stream, holder] += 1
        try:
            yield
        finally:
            with self.lock:
                self._listening -= Counter([(stream, holder)])  # one that falls to 0 is dropped
                if (stream, holder) not in self._listening:
                    end, held = self.clock() + AWAY, self._held.get(stream, {})
                    for id, (who, until) in held.items():
                        if who == holder:
                            held[id] = (who, min(until, end))

    def pages(self, stream: int) -> int:
        """How many pages are connected to a stream."""
        with self.lock:
            return sum(number == stream for number, _ in self._listening)
