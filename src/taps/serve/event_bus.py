"""Tells everybody who listens what has been put on record."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from taps.serve.records import Event
from taps.session.row import Row

News = tuple[Event, Row | None]
CAPACITY = 1000  # news one listener may be behind; then it is cut off and catches up from the log


class Subscriber:
    """A queue of a stream's news for one connection, on its event loop."""

    def __init__(self, stream: int, loop: asyncio.AbstractEventLoop) -> None:
        self.stream, self.loop = stream, loop
        self.news: asyncio.Queue[News | None] = asyncio.Queue(CAPACITY)

    def put(self, news: News | None) -> None:
        """On the loop's thread: hand it over, or cut a listener off that is too far behind."""
        try:
            self.news.put_nowait(news)
        except asyncio.QueueFull:
            while not self.news.empty():
                self.news.get_nowait()
            self.news.put_nowait(None)


class EventBus:
    """Owners tell, connections listen. None is the last news: the stream has ended, or the service."""

    def __init__(self) -> None:
        self._listeners: set[Subscriber] = set()
        self._ended: set[int] = set()
        self._closed = False
        self._lock = threading.Lock()

    def tell(self, stream: int, event: Event, row: Row | None) -> None:
        """Called by workers' threads."""
        with self._lock:
            self._hand((event, row), stream)

    def end(self, stream: int) -> None:
        """Let those go who listen to a stream that is no more."""
        with self._lock:
            self._ended.add(stream)
            self._hand(None, stream)

    def close(self) -> None:
        """Let every listener go."""
        with self._lock:
            self._closed = True
            self._hand(None)

    def _hand(self, news: News | None, stream: int | None = None) -> None:
        for listener in self._listeners:
            if stream in (None, listener.stream):
                with suppress(RuntimeError):  # its loop has ended, and the connection with it
                    listener.loop.call_soon_threadsafe(listener.put, news)

    @contextmanager
    def listen(self, stream: int) -> Iterator[Subscriber]:
        """Called on an event loop."""
        listener = Subscriber(stream, asyncio.get_running_loop())
        with self._lock:
            self._listeners.add(listener)
            if self._closed or stream in self._ended:
                listener.put(None)
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners.discard(listener)
