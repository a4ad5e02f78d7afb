"""Connections: deadlines for heads and slow readers, and a limit that no caller can use up."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # for a request's head, from its connection on
STALL_SECONDS = 30.0  # a client that reads nothing for so long is cut off
KEEP_ALIVE = 30  # seconds a connection waits for its next request
HEAD_BYTES = 16 * 1024  # of a head
CHUNK = 16 * 1024  # bytes read, or written, at a time
MOST = 200  # connections; each may take a quarter of a megabyte before its token is known
SHARE = MOST // 4  # for one address of another machine; a proxy on this one may have all


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Connection(H11Protocol):
    """Uvicorn's protocol with deadlines for a request's head and for clients that do not read.

    One timer runs while the client owes something: the rest of a head, its next request, or to read.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.since = self.loop.time()  # when it was opened, or its last request with a token was answered
        self.known = False  # whether the last request that was answered had a token
        self._timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def stranger(self) -> bool:
        """Whether neither this request nor, until its token is looked up, the last one had a token."""
        return not self.known and (self.scope is None or self.scope.get("state", {}).get("token") is None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.max_size = CHUNK  # type: ignore[attr-defined]  # else asyncio reads 256 KB at once
        transport.set_write_buffer_limits(high=CHUNK)
        self._within(HEAD_SECONDS)
        everybody: Iterable[Connection] = self.connections  # type: ignore[assignment]
        mine = [each for each in everybody if each.address == self.address]
        if len(self.connections) > MOST:
            _make_room(everybody)
        elif len(mine) > SHARE and not is_loopback(self.address):
            _make_room(mine)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._stop_timer()
            self.flow.pause_reading()  # the body is read once the token was checked

    def on_response_complete(self) -> None:
        self.known = self.scope.get("state", {}).get("token") is not None
        if self.known:
            self.since = self.loop.time()
        self._within(KEEP_ALIVE + HEAD_SECONDS)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._within(STALL_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.idle:
            self._stop_timer()

    def _within(self, seconds: float) -> None:
        """Cut the connection unless the timer is stopped in time."""
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _make_room(among: Iterable[Connection]) -> None:
    """Cut one connection: one without a token before an idle one, the oldest first.

    So a new caller has time to show a token until as many others have come, whatever strangers do.
    """
    idle = [each for each in among if (each.stranger or each.idle) and not each.transport.is_closing()]
    min(idle, key=lambda each: (not each.stranger, each.since)).transport.abort()
