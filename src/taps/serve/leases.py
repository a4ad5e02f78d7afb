"""Who is looking at which question, so that two annotators are never shown the same one."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

PATIENCE = 120.0  # seconds a question is kept for somebody who does nothing,
AWAY = 5.0  # and for somebody whose page is gone: it may be on its way back


class Leases:
    """Questions held by annotators' pages, for a while; in memory: after a restart every question is free.

    Args:
        patience: Seconds until a lease that is not renewed ends.
        clock: Seconds since 1970.

    Attributes:
        lock: To be held from reading which questions are open until `take` is over: a list read before
            another annotator's answer would hand him who has it a question that is over.
    """

    def __init__(self, patience: float = PATIENCE, clock: Callable[[], float] = time.time) -> None:
        self.patience, self.clock = patience, clock
        self._held: dict[int, dict[int, tuple[str, float]]] = {}
        self._listening: Counter[tuple[int, str]] = Counter()  # connections of each holder's page
        self.lock = threading.RLock()

    def take(
        self, stream: int, holder: str, open: Sequence[int], count: int, first: int | None = None
    ) -> dict[int, float]:
        """Let somebody hold `count` of the open questions: his own before free ones, the oldest first.

        Those he held beyond that are given back.

        Args:
            stream: The stream's number.
            holder: Who wants them.
            open: Ids of the stream's open questions.
            count: How many.
            first: One that is wanted before all others, if it is his or free.

        Returns:
            When each lease ends.
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
        """While a page is connected; when it no longer is, its questions are soon free, however it ended."""
        with self.lock:
            self._listening[stream, holder] += 1
        try:
            yield
        finally:
            with self.lock:
                self._listening -= Counter([(stream, holder)])  # one that falls to 0 is dropped
                if (stream, holder) not in self._listening:
                    self._free_soon(stream, holder)

    def pages(self, stream: int) -> int:
        """How many pages wait for the stream's questions."""
        with self.lock:
            return sum(number == stream for number, _ in self._listening)

    def _free_soon(self, stream: int, holder: str) -> None:
        end, held = self.clock() + AWAY, self._held.get(stream, {})
        mine = {id: (holder, min(until, end)) for id, (who, until) in held.items() if who == holder}
        self._held[stream] = held | mine
