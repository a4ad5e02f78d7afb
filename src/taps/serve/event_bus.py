"""The event bus: sends each recorded event to the connections that subscribe to its stream."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from taps.serve.records import Event
from taps.streams.row import Row

News = tuple[Event, Row | None]
CAPACITY = 1000  # events a subscriber may be behind; then it is cut off and catches up from the log


class Subscriber:
    """A queue of a stream's events for one connection, on its event loop."""

    def __init__(self, stream: int, loop: asyncio.AbstractEventLoop) -> None:
        self.stream, self.loop = stream, loop
        self.news: asyncio.Queue[News | None] = asyncio.Queue(CAPACITY)

    def put(self, news: News | None) -> None:
        """On the loop's thread: queue an event, or cut off a subscriber that is too far behind."""
        try:
            self.news.put_nowait(news)
        except asyncio.QueueFull:
            while not self.news.empty():
                self.news.get_nowait()
            self.news.put_nowait(None)


class EventBus:
    """Stream workers publish, connections subscribe. None ends a subscription."""

    def __init__(self) -> None:
        self._subscribers: set[Subscriber] = set()
        self._ended: set[int] = set()
        self._closed = False
        self._lock = threading.Lock()

    def publish(self, stream: int, event: Event, row: Row | None) -> None:
        """Called by workers' threads."""
        with self._lock:
            self._send((event, row), stream)

    def end(self, stream: int) -> None:
        """End the subscriptions to a stream that was deleted."""
        with self._lock:
            self._ended.add(stream)
            self._send(None, stream)

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            self._closed = True
            self._send(None)

    def _send(self, news: News | None, stream: int | None = None) -> None:
        for subscriber in self._subscribers:
            if stream in (None, subscriber.stream):
                with suppress(RuntimeError):  # its loop has ended, and the connection with it
                    subscriber.loop.call_soon_threadsafe(subscriber.put, news)

    @contextmanager
    def subscribe(self, stream: int) -> Iterator[Subscriber]:
        """Called on an event loop."""
        subscriber = Subscriber(stream, asyncio.get_running_loop())
        with self._lock:
            self._subscribers.add(subscriber)
            if self._closed or stream in self._ended:
                subscriber.put(None)
        try:
            yield subscriber
        finally:
            with self._lock:
                self._subscribers.discard(subscriber)
