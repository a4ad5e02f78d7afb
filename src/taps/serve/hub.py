"""Tells everybody who listens what has been put on record."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from taps.serve.records import Event, Row

News = tuple[Event, Row | None]
CAPACITY = 1000  # news one listener may be behind; then it is cut off and catches up from the log


class Listener:
    """A queue of news for one connection, on its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.news: asyncio.Queue[News | None] = asyncio.Queue(CAPACITY)

    def put(self, news: News | None) -> None:
        """On the loop's thread: hand it over, or cut a listener off that is too far behind."""
        try:
            self.news.put_nowait(news)
        except asyncio.QueueFull:
            while not self.news.empty():
                self.news.get_nowait()
            self.news.put_nowait(None)


class Hub:
    """Listeners by stream. Owners tell, connections listen."""

    def __init__(self) -> None:
        self._listeners: dict[int, set[Listener]] = defaultdict(set)
        self._lock = threading.Lock()
        self._closed = False

    def tell(self, stream: int, event: Event, row: Row | None) -> None:
        """Called by owners' threads."""
        with self._lock:
            listeners = list(self._listeners.get(stream, ()))
        for listener in listeners:
            listener.loop.call_soon_threadsafe(listener.put, (event, row))

    @contextmanager
    def listen(self, stream: int) -> Iterator[Listener]:
        """Called on an event loop."""
        listener = Listener(asyncio.get_running_loop())
        with self._lock:
            self._listeners[stream].add(listener)
            if self._closed:
                listener.put(None)
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners[stream].discard(listener)

    def close(self) -> None:
        """Let every listener go."""
        with self._lock:
            self._closed = True
            listeners = [each for group in self._listeners.values() for each in group]
        for listener in listeners:
            listener.loop.call_soon_threadsafe(listener.put, None)
