"""Who is looking at which question, so that two experts are never shown the same one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

PATIENCE = 120.0  # seconds a question is kept for somebody who does nothing


class Leases:
    """Questions held by experts' pages, for a while; in memory: after a restart every question is free.

    Args:
        patience: Seconds until a lease that is not renewed ends.
        clock: Seconds since 1970.

    Attributes:
        lock: To be held from reading which questions are open until `take` is over: a list read before
            another expert's answer would hand him who has it a question that is over.
    """

    def __init__(self, patience: float = PATIENCE, clock: Callable[[], float] = time.time) -> None:
        self.patience, self.clock = patience, clock
        self._held: dict[int, dict[int, tuple[str, float]]] = {}
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
