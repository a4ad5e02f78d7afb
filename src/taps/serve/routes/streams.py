"""Streams: begin, list, look at, end."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool

from taps.serve import schemas as s
from taps.serve.auth import allow, caller
from taps.serve.explanations import asking
from taps.serve.service import StreamConfig
from taps.serve.state import state_of
from taps.serve.tokens import ROLES, Token
from taps.session.log import ANSWERED, EXPIRED, SKIPPED
from taps.session.row import CORRECTED, OPEN

router = APIRouter(prefix="/v1/streams", tags=["streams"])

Key = Annotated[str | None, Header(min_length=1, max_length=200)]


@router.get("")
async def list_streams(request: Request, token: Annotated[Token, Depends(caller)]) -> list[s.StreamInfo]:
    """The streams this token is for."""
    workers = state_of(request).service.workers.values()
    found = [worker.session.stream for worker in list(workers)]
    return [s.StreamInfo.of(each) for each in found if token.stream in (None, each.name)]


@router.post("", status_code=201)
def create_stream(
    body: s.NewStream,
    request: Request,
    token: Annotated[Token, Depends(allow("admin", everywhere=True))],
    idempotency_key: Key = None,
) -> s.StreamInfo:
    """Begin a stream with its own classes, method, settings and learner."""
    beginning = StreamConfig(**body.model_dump())
    return s.StreamInfo.of(state_of(request).service.create(beginning, token.id, idempotency_key))


@router.get("/{stream}", dependencies=[Depends(allow(*ROLES))])
async def show_stream(stream: str, request: Request) -> s.StreamInfo:
    """How a stream began."""
    return s.StreamInfo.of(state_of(request).service.stream(stream))


@router.delete("/{stream}", status_code=204)
def delete_stream(
    stream: str,
    request: Request,
    token: Annotated[Token, Depends(allow("admin"))],
    idempotency_key: Key = None,
) -> Response:
    """End a stream: its log, its learner and its images are removed."""
    state_of(request).service.remove(stream, token.id, idempotency_key)
    return Response(status_code=204)


@router.get("/{stream}/stats", dependencies=[Depends(allow(*ROLES))])
async def show_stats(stream: str, request: Request) -> s.Stats:
    """Counts so far, and what the learner says of itself."""
    service = state_of(request).service
    worker = service.worker(stream)
    learner = await asyncio.wrap_future(worker.send(lambda session: session.summary()))
    counts = await run_in_threadpool(service.store.counts, worker.session.stream.id)
    asked = sum(counts.get(state, 0) for state in (OPEN, ANSWERED, SKIPPED, EXPIRED))
    return s.Stats(
        stream=stream,
        seen=learner["seen"],
        asked=asked,
        open=counts.get(OPEN, 0),
        answered=counts.get(ANSWERED, 0),
        skipped=counts.get(SKIPPED, 0),
        expired=counts.get(EXPIRED, 0),
        corrected=counts.get(CORRECTED, 0),
        agreed=counts["agreed"],
        events=learner["seq"],
        asking=asking(worker.session.stream, service.budget_of(stream)),
        accuracy=learner.get("accuracy"),
        forecast=learner.get("forecast"),
        learner=learner,
    )


@router.post("/{stream}/classes", status_code=201)
async def add_classes(
    stream: str,
    body: s.NewClasses,
    request: Request,
    token: Annotated[Token, Depends(allow("label"))],
    idempotency_key: Key = None,
) -> s.Classes:
    """Make room for classes that were not known when the stream began; what was learnt stays."""
    send = state_of(request).service.send
    adding = send(stream, lambda session: session.add_classes(body.names, token.id, idempotency_key))
    found = await asyncio.wrap_future(adding)
    return s.Classes(classes=found)
