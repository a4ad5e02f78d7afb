"""Server-sent events of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from taps.files import json_text
from taps.serve import schemas as s
from taps.serve.dependencies import Annotator, Here, State, Worker, still_counts
from taps.serve.event_bus import News
from taps.serve.records import Event
from taps.serve.store import Store
from taps.serve.tokens import Token
from taps.streams.row import Row

router = APIRouter(prefix="/v1/streams/{stream}", tags=["events"])

PAUSE = 15.0  # seconds after which a comment shows that the connection lives
PAGE = 500
HOLDING = "The holder of leases: they end soon after this connection."
LAST = 2**31 - 1  # the greatest number an event can have


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def stream_events(
    token: Annotator,
    state: Here,
    worker: Worker,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    after: Annotated[int | None, Query(ge=0, le=LAST, description="Begin after this event.")] = None,
    once: Annotated[bool, Query(description="End when all that is on record was sent.")] = False,
    holder: Annotated[str | None, Query(description=HOLDING, max_length=64, pattern=s.HOLDER)] = None,
) -> StreamingResponse:
    """Events of a stream. A browser that lost the connection continues with Last-Event-ID."""
    number = worker.stream.id
    begin = min(int(last_event_id), LAST) if last_event_id and last_event_id.isdecimal() else after
    if begin is None:
        begin = 0 if once else await run_in_threadpool(state.service.store.last_seq, number)
    return StreamingResponse(
        follow(state, token, number, begin, once, holder),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def follow(
    state: State, token: Token, stream: int, seen: int, once: bool, holder: str | None = None
) -> AsyncIterator[str]:
    """The log after event `seen`, then live events, while the token is active and the stream exists."""
    present = nullcontext() if holder is None else state.service.leases.listening(stream, holder)
    with present, state.service.bus.subscribe(stream) as subscriber:
        while page := await run_in_threadpool(_page, state.service.store, stream, seen):
            if not await still_counts(token, state.tokens):
                return
            for event, row in page:
                yield text_of(event, row)
                seen = event.seq
        while not once:
            news: News | tuple[()] | None = ()
            with suppress(TimeoutError):
                news = await asyncio.wait_for(subscriber.news.get(), PAUSE)
            if news is None or not await still_counts(token, state.tokens):
                return
            if not news:
                yield ": \n\n"
            elif news[0].seq > seen:
                seen = news[0].seq
                yield text_of(*news)


def _page(store: Store, stream: int, seen: int) -> list[News]:
    """The next recorded events, each with its prediction as it is now."""
    found = store.events(stream, seen, PAGE)
    ids = [event.prediction for event in found if event.prediction is not None]
    rows = {row.id: row for row in store.predictions(stream, ids=ids)} if ids else {}
    return [(event, rows.get(-1 if event.prediction is None else event.prediction)) for event in found]


def text_of(event: Event, row: Row | None) -> str:
    """One event in the form of the protocol."""
    data: dict[str, Any] = {"seq": event.seq, "at": event.at, "who": event.who, "value": event.value}
    if row is not None:
        data["prediction"] = s.Prediction.model_validate(row).model_dump()
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {json_text(data)}\n\n"
