"""Tokens and browser sessions."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request, Response

from taps.serve import schemas as s
from taps.serve.dependencies import COOKIE, Admin, Caller, Here
from taps.serve.errors import UnusableError
from taps.serve.tokens import ANYBODY, LINK, SESSION, Token, csrf_of

router = APIRouter(prefix="/v1", tags=["access"])


@router.post("/session", status_code=201)
def sign_in(
    request: Request, response: Response, token: Caller, state: Here, body: s.SignIn | None = None
) -> s.Session:
    """Exchange a bearer token for a session cookie, so that the page need not keep the token."""
    if token is ANYBODY or token.parent is not None:
        raise UnusableError("A session is opened with a bearer token; make one with `taps token create`.")
    name = token.name
    if body is not None and body.name is not None:  # those who share a link have names of their own
        if token.name != LINK:
            raise UnusableError(f"This token is that of {token.name!r}; sign in without another name.")
        name = " ".join(body.name.split()) or token.name
    left = SESSION if token.expires is None else min(SESSION, token.expires - time.time())
    made, secret = state.tokens.create(
        name, tuple(token.roles.split(",")), stream=token.stream, seconds=left, parent=token.id, who=token.id
    )
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, secret, max_age=int(left), httponly=True, samesite="strict", secure=secure)
    return _session(made, secret)


@router.get("/session")
async def show_session(request: Request, token: Caller) -> s.Session:
    """Who is signed in, with the CSRF token for a page that was reloaded."""
    return _session(token, request.cookies.get(COOKIE, ""))


@router.delete("/session", status_code=204)
def sign_out(state: Here, token: Caller) -> Response:
    """End the session."""
    if token.parent is None:
        raise UnusableError("No session is open.")
    state.tokens.revoke(token.id, token.id)
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


@router.get("/tokens")
def list_tokens(state: Here, token: Admin) -> list[s.TokenInfo]:
    """All tokens, without their secrets, which are not stored."""
    return [s.TokenInfo.model_validate(each) for each in state.tokens.list() if each.parent is None]


@router.post("/tokens", status_code=201)
def create_token(body: s.NewToken, state: Here, token: Admin) -> s.MadeToken:
    """Create a token; it is shown this once."""
    made, secret = state.tokens.create(
        body.name, tuple(body.roles), stream=body.stream, seconds=body.seconds, who=token.id
    )
    return s.MadeToken.model_validate(vars(made) | {"token": secret})


@router.delete("/tokens/{id}", status_code=204)
def revoke_token(id: str, state: Here, token: Admin) -> Response:
    """End a token, and the sessions opened with it."""
    state.tokens.revoke(id, token.id)
    return Response(status_code=204)


def _session(token: Token, secret: str) -> s.Session:
    return s.Session(
        name=token.name,
        csrf=csrf_of(secret) if token.parent else "",
        roles=token.roles.split(","),
        stream=token.stream,
        expires=token.expires or 0.0,
    )
