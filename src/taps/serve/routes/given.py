"""What routes are given: the application's state, who asks, the stream in the path, an idempotency key."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Request

from taps.serve.auth import allow, caller
from taps.serve.state import State, state_of
from taps.serve.stream_worker import StreamWorker
from taps.serve.tokens import ROLES, Token


async def _state(request: Request) -> State:
    return state_of(request)


Here = Annotated[State, Depends(_state)]


async def _worker(stream: str, state: Here) -> StreamWorker:
    return state.service.worker(stream)


Worker = Annotated[StreamWorker, Depends(_worker)]
"""The worker of the stream in the path. Comes after who asks: 403 before anything is looked up."""
Caller = Annotated[Token, Depends(caller)]
Annotator = Annotated[Token, Depends(allow("label"))]
StreamAdmin = Annotated[Token, Depends(allow("admin"))]
Admin = Annotated[Token, Depends(allow("admin", everywhere=True))]
ANYBODY, ANNOTATES, ADMINISTERS = ([Depends(allow(*roles))] for roles in (ROLES, ("label",), ("admin",)))
"""The same, where it need not be known who it is."""
Key = Annotated[
    str | None,
    Header(
        alias="idempotency-key",
        min_length=1,
        max_length=200,
        description="A retry with the same key gets the same answer.",
    ),
]
