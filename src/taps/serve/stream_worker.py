"""One thread owns one stream: others send it messages and get a future, and never touch the learner."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from taps.serve.errors import LostError, StoreDownError, TooManyError
from taps.serve.stream_session import StreamSession
from taps.streams.row import Row

T = TypeVar("T")
Message = tuple[Future[Any], Callable[[StreamSession], Any]]

log = logging.getLogger("taps.serve")

CLOSED = "The stream is being closed."
IDLE = 600.0  # seconds without a message after which a learner is saved and unloaded


class StreamWorker:
    """Runs messages one after the other, and what is due between them. `capacity` messages may wait."""

    def __init__(self, session: StreamSession, capacity: int) -> None:
        self.session, self.log, self.stream = session, session.learner_log, session.stream
        self._messages: queue.Queue[Message | None] = queue.Queue(capacity)
        self._closed, self._lock = False, threading.Lock()
        self.thread = threading.Thread(target=self._run, name=f"worker-{session.stream.name}", daemon=True)

    def start(self) -> None:
        self.thread.start()

    @property
    def waiting(self) -> int:
        return self._messages.qsize()

    def row(self, id: int) -> Row:
        """A prediction on record; any thread may read it."""
        return self.session.store.prediction(self.stream.id, id)

    def rows(self, **which: Any) -> list[Row]:
        """Predictions on record, as `Store.predictions` chooses them."""
        return self.session.store.predictions(self.stream.id, **which)

    def send(self, act: Callable[[StreamSession], T]) -> Future[T]:
        """Have something done to the stream; the future has the result."""
        future: Future[T] = Future()
        with self._lock:  # nothing may be queued after the end, where no one would run it
            if self._closed:
                raise StoreDownError(CLOSED, retry_after=5)
            try:
                self._messages.put_nowait((future, act))
            except queue.Full:
                raise TooManyError(
                    "Too many requests wait for this stream; send fewer at a time.", retry_after=1
                ) from None
        return future

    def stop(self) -> None:
        """Refuse what waits, finish what runs, then save the learner. `join` waits for it."""
        with self._lock:
            self._closed = True
        with suppress(queue.Empty):
            while True:
                message = self._messages.get_nowait()
                if message is not None and message[0].set_running_or_notify_cancel():
                    message[0].set_exception(StoreDownError(CLOSED, retry_after=5))
        self._messages.put(None)

    def join(self, timeout: float | None = None) -> bool:
        self.thread.join(timeout)
        return not self.thread.is_alive()

    def _run(self) -> None:
        wait, last = 0.0, time.monotonic()
        self._safely(self.log.wake)
        while True:
            try:
                message = self._messages.get(timeout=max(wait, 0.001))
            except queue.Empty:
                message = None
            if message is not None:
                self._handle(*message)
                last = time.monotonic()
            elif self._closed and self._messages.empty():
                break
            wait = self._safely(self.session.tick) or 1.0
            if time.monotonic() - last > IDLE and self.log.loaded:
                self._safely(self.log.unload)
        self._safely(self.log.unload)

    def _handle(self, future: Future[Any], act: Callable[[StreamSession], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            try:
                result = act(self.session)
            except LostError:  # nothing was recorded yet: the restored learner does it once more
                self.log.drop()
                result = act(self.session)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _safely(self, act: Callable[[], T]) -> T | None:
        """Keep the thread alive whatever happens; the next message gets the error."""
        try:
            return act()
        except Exception as error:
            log.error(f"upkeep failed: {error}", extra={"stream": self.stream.name})
            return None
