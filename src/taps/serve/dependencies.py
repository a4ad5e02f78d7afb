"""What routes depend on: the application's state, the caller and his role, the stream in the path.

A caller sends a bearer token, or a browser's session cookie with a CSRF token.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Header, Path, Request
from fastapi.concurrency import run_in_threadpool

from taps.serve.connections import MOST
from taps.serve.errors import ForbiddenError, SignInError
from taps.serve.limits import Rates, Shares
from taps.serve.options import Limits
from taps.serve.pictures import Pictures
from taps.serve.repredict import Repredictor
from taps.serve.service import Service
from taps.serve.stream_worker import StreamWorker
from taps.serve.tokens import ANYBODY, ROLES, Token, Tokens, csrf_of

if TYPE_CHECKING:
    from taps.serve.labelstudio import LabelStudio

COOKIE = "taps_session"
CSRF_HEADER = "X-CSRF-Token"
SAFE = ("GET", "HEAD", "OPTIONS")
IMAGES = 8
BASIC = "/label-studio/"  # where a token may also be the password of basic authentication


@dataclass
class State:
    """One running application.

    Attributes:
        hosts: Names this service is called by; empty: any.
        turns: By token: responses with an image that may be under way. Browsers load six at a time.
        checks: By token: one image is checked at a time, so that other callers' wait for no more.
    """

    service: Service
    tokens: Tokens
    limits: Limits
    hosts: tuple[str, ...] = ()
    studio: LabelStudio | None = None
    repredictor: Repredictor = field(default_factory=Repredictor)
    requests: Shares = field(default_factory=lambda: Shares(MOST))
    pictures: Pictures = field(default_factory=Pictures)
    turns: defaultdict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(partial(asyncio.Semaphore, IMAGES))
    )
    checks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    def __post_init__(self) -> None:
        self.rates, self.uploads = Rates(self.limits.rate), Shares(self.limits.uploads)


async def _state(request: Request) -> State:
    state: State = request.app.state.taps
    return state


async def caller(request: Request) -> Token:
    """The caller's token; while no token was ever made, that of anybody on this machine.

    Looked up once a request, by `SecurityMiddleware` before the body is read where there may be one.
    """
    known: Token | None = getattr(request.state, "token", None)
    if known is not None:
        return known
    state = await _state(request)
    try:
        token = _find(request, await _refreshed(state.tokens))
    except SignInError:
        state.rates.take("unknown")  # all who guess share one rate
        raise
    state.rates.take(token.share)
    state.requests.take(token.share)  # `SecurityMiddleware` gives it back
    request.state.token = token
    return token


async def _refreshed(tokens: Tokens) -> Tokens:
    """The tokens, read again in a thread where that is due, so that no other request waits for it."""
    if tokens.stale:
        await run_in_threadpool(tokens.refresh)
    return tokens


async def still_counts(token: Token, tokens: Tokens) -> bool:
    """Whether a token is still active; for requests that take long."""
    return (await _refreshed(tokens)).counts(token)


def _find(request: Request, tokens: Tokens) -> Token:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic" and request.scope["path"].startswith(BASIC):
        scheme, secret = "bearer", _password(secret)
    if scheme:
        if scheme.lower() != "bearer":
            raise SignInError("Only bearer tokens are known; send `Authorization: Bearer …`.")
        return _of_kind(tokens.check(secret.strip()), session=False)
    cookie = request.cookies.get(COOKIE)
    if cookie is None:
        if tokens.any():
            raise SignInError("A token is needed; send it as `Authorization: Bearer …`.")
        return ANYBODY
    token = _of_kind(tokens.check(cookie), session=True)
    given = request.headers.get(CSRF_HEADER, "")
    if request.method not in SAFE and not hmac.compare_digest(given.encode(), csrf_of(cookie).encode()):
        raise ForbiddenError(f"The header {CSRF_HEADER} of this session is missing or wrong.")
    return token


def _password(sent: str) -> str:
    """Of basic authentication."""
    try:
        return base64.b64decode(sent, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _of_kind(token: Token, *, session: bool) -> Token:
    """Refuse a session's secret as a header, and a token as a cookie."""
    if (token.parent is not None) != session:
        raise SignInError("A session is sent as a cookie and a token as a header, not the other way round.")
    return token


def allow(*roles: str, everywhere: bool = False) -> Callable[[Request], Awaitable[Token]]:
    """A dependency: the caller, who must have one of these roles, or admin, for the stream in the path.

    Args:
        everywhere: The token must be for all streams.
    """

    async def check(request: Request) -> Token:
        token = await caller(request)
        stream = None if everywhere else request.path_params.get("stream")
        if not any(token.may(role, stream) for role in roles):
            needed = " or ".join(dict.fromkeys((*roles, "admin")))
            place = "every stream" if stream is None else f"stream {stream!r}"
            raise ForbiddenError(f"This needs a token with the role {needed} for {place}.")
        return token

    return check


ANY_TOKEN, ANNOTATES, ADMINISTERS = (Depends(allow(*roles)) for roles in (ROLES, ("label",), ("admin",)))
Here = Annotated[State, Depends(_state)]
Caller = Annotated[Token, Depends(caller)]
Annotator = Annotated[Token, ANNOTATES]
StreamAdmin = Annotated[Token, ADMINISTERS]
Admin = Annotated[Token, Depends(allow("admin", everywhere=True))]


async def _turn(request: Request, token: Caller, state: Here) -> None:
    """Wait while the caller has many images under way; `SecurityMiddleware` ends this turn."""
    turns = state.turns[token.share]
    await turns.acquire()
    request.state.release = turns.release


TURN = Depends(_turn)


async def _worker(stream: str, state: Here) -> StreamWorker:
    return state.service.worker(stream)


Worker = Annotated[StreamWorker, Depends(_worker)]
"""The worker of the stream in the path. Name it after the caller: 403 before anything is looked up."""
Id = Annotated[int, Path(ge=0, le=2**31 - 1)]
Key = Annotated[
    str | None,
    Header(
        alias="idempotency-key",
        min_length=1,
        max_length=200,
        description="A retry with the same key gets the same answer.",
    ),
]
