"""Questions and the answers to them; predictions on record, their images, and what answers changed."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.concurrency import run_in_threadpool
from PIL import Image

from taps.images.decode import load_image
from taps.serve import schemas as s
from taps.serve.errors import NotFoundError
from taps.serve.explanations import explain
from taps.serve.opinions import wanted_of
from taps.serve.routes.given import ANNOTATES, Annotator, Here, Key, Worker
from taps.serve.stream_session import AnswerResult, StreamSession
from taps.serve.stream_worker import StreamWorker
from taps.session.row import LABELLED, OPEN, UNQUERIED, Row

router = APIRouter(prefix="/v1/streams/{stream}")

CONSIDERED = 1000  # open questions, the oldest first
Id = Annotated[int, Path(ge=0, le=2**31 - 1)]
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[int, Query(ge=-1, le=2**31 - 1, description="Only ids above this one.")]
Act = Callable[[StreamSession], AnswerResult]


async def change(worker: StreamWorker, act: Act) -> s.Changed:
    """Have the worker of a stream change a question, and tell what it is now."""
    given = await asyncio.wrap_future(worker.send(act))
    return s.Changed(prediction=s.Prediction.of(given.row), changed=given.changed)


@router.get("/queries", tags=["questions"], dependencies=ANNOTATES)
def list_queries(worker: Worker, after: After = -1, limit: Limit = 100) -> list[s.Prediction]:
    """The questions that wait for an answer, the oldest first."""
    return [s.Prediction.of(row) for row in worker.rows(states=[OPEN], after=after, limit=limit)]


@router.post("/queries/lease", tags=["labelling"])
async def lease(body: s.LeaseRequest, state: Here, token: Annotator, worker: Worker) -> list[s.Question]:
    """Hold some questions for a while: nobody else is given them. Call again to renew, or for more."""
    service, found = state.service, worker.stream
    budget = service.budget_of(found.name)
    summary = await asyncio.wrap_future(worker.send(lambda session: session.summary()))

    second: set[int] = set()

    def hold() -> dict[int, tuple[Row, float]]:
        with service.leases.lock:
            seconds = wanted_of(service.store, found.id, s.name_of(token))
            rows = {row.id: row for row in [*worker.rows(states=[OPEN], limit=CONSIDERED), *seconds]}
            second.update(row.id for row in seconds)
            held = service.leases.take(found.id, body.holder, list(rows), body.count, body.first)
        return {id: (rows[id], until) for id, until in held.items()}

    def question(row: Row, until: float) -> s.Question:
        why = explain(found, service.store, row, summary, budget)
        return s.Question(prediction=s.Prediction.of(row), why=why, until=until, second=row.id in second)

    held = await run_in_threadpool(hold)
    kept = partial(StreamSession.repredict_kept, ids=list(held))  # what it would say by now
    now = await asyncio.wrap_future(worker.send(kept)) if held else {}
    rows = [(replace(row, top=now.get(id, row.top)), until) for id, (row, until) in held.items()]
    return await run_in_threadpool(lambda: [question(*each) for each in rows])


@router.get("/queries/{id}", tags=["questions"], dependencies=ANNOTATES)
def show_query(id: Id, worker: Worker) -> s.Prediction:
    """One question, open or not."""
    found = worker.row(id)
    if found.state == UNQUERIED:
        raise NotFoundError(f"Nobody was asked about prediction {id}.")
    return s.Prediction.of(found)


@router.post("/queries/{id}/label", tags=["questions"])
async def label(id: Id, body: s.Label, token: Annotator, worker: Worker, key: Key = None) -> s.Changed:
    """Answer a question. The same answer again changes nothing; another one takes its place."""
    return await change(worker, lambda session: session.label(id, body.by(token), token.id, key))


@router.post("/queries/{id}/skip", tags=["questions"])
async def skip(id: Id, token: Annotator, worker: Worker, key: Key = None) -> s.Changed:
    """Close a question without an answer."""
    return await change(worker, lambda session: session.skip(id, token.id, key))


@router.post("/queries/{id}/undo", tags=["questions"])
async def undo(id: Id, token: Annotator, worker: Worker, key: Key = None) -> s.Changed:
    """Take an answer or a skip back; the question is open again."""
    return await change(worker, lambda session: session.undo(id, token.id, key))


@router.get("/predictions", tags=["questions"], dependencies=ANNOTATES)
def list_predictions(
    worker: Worker,
    after: After = -1,
    limit: Limit = 100,
    newest: Annotated[bool, Query(description="The newest first.")] = False,
    labelled: Annotated[bool, Query(description="Those with a label alone.")] = False,
) -> list[s.Prediction]:
    """Predictions on record."""
    rows = worker.rows(states=LABELLED if labelled else (), after=after, limit=limit, newest=newest)
    return [s.Prediction.of(row) for row in rows]


@router.get("/predictions/{id}", tags=["questions"], dependencies=ANNOTATES)
def show_prediction(id: Id, worker: Worker) -> s.Prediction:
    """One prediction and what became of its question."""
    return s.Prediction.of(worker.row(id))


@router.post("/predictions/{id}/label", tags=["labelling"])
async def label_prediction(
    id: Id, body: s.Label, token: Annotator, worker: Worker, key: Key = None
) -> s.Changed:
    """Label an image, whether somebody was asked about it or not; the model learns from it all the same."""
    return await change(
        worker, lambda session: session.label(id, body.by(token), token.id, key, unasked=True)
    )


@router.get(
    "/predictions/{id}/image",
    tags=["questions"],
    dependencies=ANNOTATES,
    response_class=Response,
    responses={200: {"content": {"image/*": {}}}},
)
def show_image(id: Id, worker: Worker) -> Response:
    """The image as it was sent, while it is kept."""
    data = image_of(worker, id)
    return Response(data, media_type=media_type(data), headers={"Cache-Control": "private, max-age=3600"})


@router.get(
    "/predictions/{id}/picture",
    tags=["labelling"],
    dependencies=ANNOTATES,
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}}},
)
def show_picture(id: Id, worker: Worker, size: Annotated[int, Query(ge=32, le=2048)] = 1600) -> Response:
    """The image as any browser can show it, no wider or higher than `size`, while it is kept."""
    data = smaller(image_of(worker, id), size)
    return Response(data, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=86400"})


@router.get("/changes", tags=["labelling"], dependencies=ANNOTATES)
async def changes(
    state: Here, worker: Worker, last: Annotated[int, Query(ge=1, le=100)] = 20
) -> s.Repredictions:
    """Look at the last images again: about which would the model now say something else than before?"""

    def find() -> list[Row]:
        rows = worker.rows(limit=2 * last, newest=True)
        return [row for row in rows if row.kept and row.state not in LABELLED][:last]

    return await state.looks.look(worker, await run_in_threadpool(find))


def image_of(worker: StreamWorker, id: int) -> bytes:
    return worker.session.store.blobs.read(worker.row(id).image)


def media_type(data: bytes) -> str:
    """From the first bytes, never from what the sender said; nothing a browser would run."""
    signatures = {
        b"\xff\xd8\xff": "image/jpeg",
        b"\x89PNG": "image/png",
        b"GIF8": "image/gif",
        b"BM": "image/bmp",
    }
    for begin, kind in signatures.items():
        if data.startswith(begin):
            return kind
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else "application/octet-stream"


def smaller(data: bytes, size: int) -> bytes:
    """An image as JPEG, within a square."""
    image = Image.fromarray(load_image(data))
    image.thumbnail((size, size))
    made = io.BytesIO()
    image.save(made, "JPEG", quality=88)
    return made.getvalue()
