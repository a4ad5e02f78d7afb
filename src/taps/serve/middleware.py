"""Around every request: host, origin, token, size and time of the body, security headers, one log line."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taps.serve.connections import CHUNK
from taps.serve.dependencies import SAFE, State, caller
from taps.serve.errors import ForbiddenError, MisdirectedError, ServiceError, TooLargeError

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
BODY_SECONDS = 30.0  # a body takes so long at most
IMAGE = re.compile("/v1/streams/[^/]+/predict")  # where a body is an image; all others are JSON
TOO_LARGE = "The body is over {:,} bytes; send less."
CLOSE = {"Connection": "close"}


class SecurityMiddleware:
    """The outermost layer, plain ASGI: the caller is checked before a byte of the body is read."""

    def __init__(self, app: ASGIApp, state: State) -> None:
        self.app, self.state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.state.limits.body if IMAGE.fullmatch(scope["path"]) else self.state.limits.json
        request = _Request(receive, send, limit)
        try:
            await self._check(scope, limit)
            await self.app(scope, request.receive, request.send)
        except ServiceError as error:  # raised by `_check`; the application answers those of the routes
            headers = {**error.headers, **CLOSE}  # nobody reads the rest of the body
            answer = JSONResponse({"detail": str(error)}, error.status, headers)
            await answer(scope, request.receive, request.send)
        finally:
            known = scope.get("state", {})
            if "token" in known:
                self.state.requests.give_back(known["token"].share)
            if "release" in known:
                known["release"]()
            self._log(scope, request)

    async def _check(self, scope: Scope, limit: int) -> None:
        """Refuse wrong hosts and origins, and bodies of unknown callers or over the limit."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.state.hosts and (name := _hostname(host)) not in self.state.hosts:
            raise MisdirectedError(f"This service is not called {name!r}; see --allowed-host.")
        if scope["method"] in SAFE:
            return
        if origin is not None and _parts(origin).netloc != host:
            raise ForbiddenError("A page of another site sent this; use the service's own page or a token.")
        await caller(Request(scope))
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limit:
            raise TooLargeError(TOO_LARGE.format(limit))

    def _log(self, scope: Scope, request: _Request) -> None:
        seconds = time.perf_counter() - request.began
        line = {
            "method": scope["method"],
            "path": scope["path"],
            "status": request.status,
            "ms": round(1000 * seconds, 2),
            "who": getattr(scope.get("state", {}).get("token"), "id", None),
            "bytes": request.received,
        }
        log.info("request", extra=line)


class _Request:
    """One request: counts what comes in, adds headers to what goes out."""

    def __init__(self, receive: Receive, send: Send, limit: int) -> None:
        self._receive, self._send, self.limit = receive, send, limit
        self.received, self.status, self.began = 0, 0, time.perf_counter()
        self._end = asyncio.get_running_loop().time() + BODY_SECONDS
        self._more = True  # whether more of the body is to come

    async def receive(self) -> Message:
        """The next part of the body. While FastAPI reads it, only an `HTTPException` keeps its status."""
        try:
            async with asyncio.timeout_at(self._end if self._more else None):
                message = await self._receive()
        except TimeoutError:
            detail = f"The body did not arrive within {BODY_SECONDS:g} s; send it again."
            raise HTTPException(408, detail, CLOSE) from None
        self._more = bool(message.get("more_body"))
        self.received += len(message.get("body", b""))
        if self.received > self.limit:
            raise HTTPException(413, TOO_LARGE.format(self.limit), CLOSE)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message.get("headers", [])}
            own = [(name, value) for name, value in HEADERS.items() if name not in present]
            message = {**message, "headers": [*message.get("headers", []), *own]}
        body = message.get("body", b"")
        for at in range(CHUNK, len(body), CHUNK):  # each waits until the client has read what was sent before
            await self._send({**message, "body": body[at - CHUNK : at], "more_body": True})
        if len(body) > CHUNK:
            message = {**message, "body": body[(len(body) - 1) // CHUNK * CHUNK :]}
        await self._send(message)


def _parts(url: str) -> SplitResult:
    """The parts of a URL; empty ones where it is malformed."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _hostname(host: str) -> str:
    """Without the port.

    >>> _hostname("localhost:8000"), _hostname("[::1]:8000"), _hostname("127.0.0.1"), _hostname("[::1")
    ('localhost', '::1', '127.0.0.1', '')
    """
    return (_parts(f"//{host}").hostname or "") if "@" not in host else ""
