"""For the labelling page: questions on lease, labels nobody asked for, pictures, and what answers changed."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from PIL import Image

from taps.images.decode import load_image
from taps.serve import schemas as s
from taps.serve.auth import allow
from taps.serve.explanations import explain
from taps.serve.routes.queries import Annotator, Id, Key, change, image_of
from taps.serve.state import state_of
from taps.serve.stream_session import StreamSession
from taps.session.row import LABELLED, OPEN, Row

router = APIRouter(prefix="/v1/streams/{stream}", tags=["labelling"])

CONSIDERED = 1000  # open questions, the oldest first


@router.post("/queries/lease", dependencies=[Depends(allow("label"))])
async def lease(stream: str, body: s.LeaseRequest, request: Request) -> list[s.Question]:
    """Hold some questions for a while: nobody else is given them. Call again to renew, or for more."""
    state = state_of(request)
    worker, store = state.service.worker(stream), state.service.store
    found = worker.session.stream
    summary = await asyncio.wrap_future(worker.send(lambda session: session.summary()))
    budget = state.service.budget_of(stream)

    def hold() -> dict[int, tuple[Row, float]]:
        with state.service.leases.lock:
            open = store.predictions(found.id, states=[OPEN], limit=CONSIDERED)
            rows = {row.id: row for row in open}
            held = state.service.leases.take(found.id, body.holder, list(rows), body.count, body.first)
        return {id: (rows[id], until) for id, until in held.items()}

    def question(row: Row, until: float) -> s.Question:
        why = explain(found, store, row, summary, budget)
        return s.Question(prediction=s.Prediction.of(row), why=why, until=until)

    held = await run_in_threadpool(hold)
    kept = partial(StreamSession.repredict_kept, ids=list(held))  # what it would say by now
    now = await asyncio.wrap_future(worker.send(kept)) if held else {}
    rows = [(replace(row, top=now.get(id, row.top)), until) for id, (row, until) in held.items()]
    return await run_in_threadpool(lambda: [question(*each) for each in rows])


@router.post("/predictions/{id}/label")
async def label_prediction(
    stream: str, id: Id, body: s.Label, request: Request, token: Annotator, idempotency_key: Key = None
) -> s.Changed:
    """Label an image, whether somebody was asked about it or not; the model learns from it all the same."""
    return await change(
        request,
        stream,
        lambda session: session.label(id, body.by(token), token.id, idempotency_key, unasked=True),
    )


@router.get("/changes", dependencies=[Depends(allow("label"))])
async def changes(
    stream: str, request: Request, last: Annotated[int, Query(ge=1, le=100)] = 20
) -> s.Repredictions:
    """Look at the last images again: about which would the model now say something else than before?"""
    state = state_of(request)
    number = state.service.stream(stream).id

    def find() -> list[Row]:
        rows = state.service.store.predictions(number, limit=2 * last, newest=True)
        return [row for row in rows if row.kept and row.state not in LABELLED][:last]

    return await state.looks.look(state.service, stream, await run_in_threadpool(find))


@router.get(
    "/predictions/{id}/picture",
    dependencies=[Depends(allow("label"))],
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}}},
)
def show_picture(
    stream: str, id: Id, request: Request, size: Annotated[int, Query(ge=32, le=2048)] = 1600
) -> Response:
    """The image as any browser can show it, no wider or higher than `size`, while it is kept."""
    data = smaller(image_of(stream, id, request), size)
    return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=86400"})


def smaller(data: bytes, size: int) -> bytes:
    """An image as JPEG, within a square."""
    image = Image.fromarray(load_image(data))
    image.thumbnail((size, size))
    made = io.BytesIO()
    image.save(made, "JPEG", quality=88)
    return made.getvalue()
