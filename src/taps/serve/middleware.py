"""Around every request: who may call, how much may come in, what a browser is told, one log line."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from taps.serve.auth import SAFE
from taps.serve.state import State

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

log = logging.getLogger("taps.serve")

HEADERS = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        b"font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}
METHODS = {*SAFE, "POST", "PUT", "PATCH", "DELETE"}


class TooMuch(Exception):  # noqa: N818
    """The body is longer than allowed."""


class Guard:
    """The outermost layer. It is plain ASGI: a body is counted as it comes in, and never held here."""

    def __init__(self, app: App, state: State) -> None:
        self.app, self.state = app, state

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = _Request(scope, receive, send, self.state.limits.body)
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(scope["method"], headers)
        try:
            if refused:
                await request.refuse(*refused)
            else:
                await self.app(scope, request.receive, request.send)
        except TooMuch:
            if not request.status:
                await request.refuse(413, f"The body is over {self.state.limits.body:,} bytes; send less.")
        finally:
            self._note(scope, request)

    def _refused(self, method: str, headers: dict[bytes, str]) -> tuple[int, str] | None:
        """What other web pages could do with a visitor's browser, and what is too large to begin with."""
        host = headers.get(b"host", "")
        if self.state.hosts and _hostname(host) not in self.state.hosts:
            return 421, f"This service is not called {_hostname(host)!r}; see --allowed-host."
        origin = headers.get(b"origin")
        if origin is not None and method not in SAFE and urlsplit(origin).netloc != host:
            return 403, "A page of another site sent this; use the service's own page or a token."
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > self.state.limits.body:
            return 413, f"The body is over {self.state.limits.body:,} bytes; send less."
        return None

    def _note(self, scope: MutableMapping[str, Any], request: _Request) -> None:
        seconds = time.perf_counter() - request.began
        found = getattr(scope.get("route"), "path", None) or "unknown"
        method = scope["method"] if scope["method"] in METHODS else "other"  # anybody can make some up
        self.state.metrics.request(method, found, request.status, seconds)
        line = {
            "method": scope["method"],
            "path": scope["path"],
            "status": request.status,
            "ms": round(1000 * seconds, 2),
            "who": scope.get("state", {}).get("who"),
            "bytes": request.received,
        }
        log.info("request", extra=line)


class _Request:
    """One request on its way through: counts what comes in, adds headers to what goes out."""

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send, limit: int) -> None:
        self.scope, self._receive, self._send, self.limit = scope, receive, send, limit
        self.received, self.status, self.began = 0, 0, time.perf_counter()

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self.received += len(message.get("body", b""))
            if self.received > self.limit:
                raise TooMuch
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message.get("headers", [])}
            own = [(name, value) for name, value in HEADERS.items() if name not in present]
            message = {**message, "headers": [*message.get("headers", []), *own]}
        await self._send(message)

    async def refuse(self, status: int, detail: str) -> None:
        body = json.dumps({"detail": detail}).encode()
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _hostname(host: str) -> str:
    """Without the port.

    >>> _hostname("localhost:8000"), _hostname("[::1]:8000"), _hostname("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    return (urlsplit(f"//{host}").hostname or "") if "@" not in host else ""
