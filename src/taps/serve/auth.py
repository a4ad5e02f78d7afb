"""Who asks, and whether they may: a bearer token, or a browser's session cookie with a CSRF token."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from taps.serve.errors import ForbiddenError, SignInError
from taps.serve.state import state_of
from taps.serve.tokens import ANYBODY, Token, Tokens, csrf_of

COOKIE = "taps_session"
CSRF_HEADER = "X-CSRF-Token"
SAFE = ("GET", "HEAD", "OPTIONS")
BASIC = "/label-studio/"  # where a token may also be the password of basic authentication

Caller = Callable[[Request], Awaitable[Token]]


async def caller(request: Request) -> Token:
    """Who asks. While no token was ever made: anybody, from this machine.

    Looked up once a request: before its body is read, where it may have one (`SecurityMiddleware`).
    """
    known: Token | None = getattr(request.state, "token", None)
    if known is not None:
        return known
    state = state_of(request)
    try:
        token = _find(request, await refreshed(state.tokens))
    except SignInError:
        state.rates.take("unknown")  # all who guess, together
        raise
    state.rates.take(share_of(token))
    state.requests.take(share_of(token))  # `SecurityMiddleware` gives it back
    request.state.token = token
    return token


def share_of(token: Token) -> str:
    """Whose share a request takes of: a session's is that of its token."""
    return token.parent or token.id


async def refreshed(tokens: Tokens) -> Tokens:
    """The tokens, read again where that is due; no other request waits for it."""
    if tokens.stale:
        await run_in_threadpool(tokens.refresh)
    return tokens


async def still_counts(token: Token, tokens: Tokens) -> bool:
    """Whether a token that was found before counts now; for what takes long."""
    return (await refreshed(tokens)).counts(token)


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
    """A session counts as a cookie alone, a token as a header alone."""
    if (token.parent is not None) != session:
        raise SignInError("A session is sent as a cookie and a token as a header, not the other way round.")
    return token


def allow(*roles: str, everywhere: bool = False) -> Caller:
    """A dependency: the caller, who must have one of these roles for the stream in the path.

    Args:
        *roles: Any of them will do; admin always does.
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
