"""Streams: create, list, show, delete."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from taps.asking.reasons import rule_of
from taps.methods.settings import Asking
from taps.serve import schemas as s
from taps.serve.dependencies import ANY_TOKEN, Admin, Annotator, Caller, Here, Key, StreamAdmin, Worker
from taps.serve.records import StreamConfig
from taps.streams.log import ANSWERED, EXPIRED, SKIPPED
from taps.streams.row import CORRECTED, OPEN

router = APIRouter(prefix="/v1/streams", tags=["streams"])


@router.get("")
async def list_streams(state: Here, token: Caller) -> list[s.StreamInfo]:
    """The streams that this token is for."""
    found = [worker.stream for worker in list(state.service.workers.values())]
    return [s.StreamInfo.model_validate(each) for each in found if token.stream in (None, each.name)]


@router.post("", status_code=201)
def create_stream(body: s.NewStream, state: Here, token: Admin, key: Key = None) -> s.StreamInfo:
    """Create a stream with its own classes, method, settings and learner."""
    return s.StreamInfo.model_validate(state.service.create(StreamConfig(**body.model_dump()), token.id, key))


@router.get("/{stream}", dependencies=[ANY_TOKEN])
async def show_stream(worker: Worker) -> s.StreamInfo:
    """How a stream was created."""
    return s.StreamInfo.model_validate(worker.stream)


@router.delete("/{stream}", status_code=204)
def delete_stream(stream: str, state: Here, token: StreamAdmin, key: Key = None) -> Response:
    """Delete a stream with its log, learner and images."""
    state.service.remove(stream, token.id, key)
    return Response(status_code=204)


@router.get("/{stream}/stats", dependencies=[ANY_TOKEN])
async def show_stats(stream: str, state: Here, worker: Worker) -> s.Stats:
    """Counts, and the learner's summary."""
    learner = await asyncio.wrap_future(worker.send(lambda session: session.summary()))
    counts = await run_in_threadpool(state.service.store.counts, worker.stream.id)
    settings = await run_in_threadpool(state.service.settings_of, stream)
    asking = None
    if isinstance(settings, Asking):
        budget = settings.budget if isinstance(settings.budget, int) else None
        asking = s.Asking(rule=rule_of(settings), rate=settings.rate, budget=budget)
    asked = (OPEN, ANSWERED, SKIPPED, EXPIRED)
    return s.Stats(
        stream=stream,
        seen=learner["seen"],
        asked=sum(counts.get(each, 0) for each in asked),
        **{each: counts.get(each, 0) for each in (*asked, CORRECTED)},
        agreed=counts["agreed"],
        events=learner["seq"],
        asking=asking,
        accuracy=learner.get("accuracy"),
        forecast=learner.get("forecast"),
        learner=learner,
    )


@router.post("/{stream}/classes", status_code=201)
async def add_classes(body: s.NewClasses, token: Annotator, worker: Worker, key: Key = None) -> s.Classes:
    """Add classes to a stream; what was learned stays."""
    adding = worker.send(lambda session: session.add_classes(body.names, token.id, key))
    return s.Classes(classes=await asyncio.wrap_future(adding))
