"""Questions, answers and second opinions; recorded predictions, their images, and what answers changed."""

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
from pydantic import BaseModel, Field

from taps.images.decode import load_image
from taps.serve import opinions
from taps.serve import schemas as s
from taps.serve.dependencies import ADMINISTERS, ANNOTATES, Annotator, Here, Key, Worker
from taps.serve.errors import NotFoundError
from taps.serve.explanations import Why, explain
from taps.serve.repredict import Repredictions
from taps.serve.stream_session import AnswerResult, StreamSession
from taps.serve.stream_worker import StreamWorker
from taps.session.row import LABELLED, OPEN, UNQUERIED, Row
from taps.types import Answer

router = APIRouter(prefix="/v1/streams/{stream}", dependencies=[ANNOTATES])

CONSIDERED = 1000  # open questions, the oldest first
SEVERAL = "several annotators"
SIGNATURES = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG": "image/png",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}
Id = Annotated[int, Path(ge=0, le=2**31 - 1)]
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[int, Query(ge=-1, le=2**31 - 1, description="Only ids above this one.")]


class Question(BaseModel):
    """A question leased to one annotator; meanwhile nobody else is asked it."""

    prediction: s.Prediction
    why: Why
    until: float = Field(description="When the lease ends unless it is renewed, in seconds since 1970.")
    second: bool = Field(description="Somebody else has answered it: send an opinion, not a label.")


class Twice(s.Input):
    share: Annotated[float, Field(ge=0, le=1, description="Of the answered questions.")]


async def change(worker: StreamWorker, act: Callable[[StreamSession], AnswerResult]) -> s.Changed:
    """Have a stream's worker change a question; return what it is now."""
    return s.Changed.model_validate(await asyncio.wrap_future(worker.send(act)))


@router.get("/queries", tags=["questions"])
def list_queries(worker: Worker, after: After = -1, limit: Limit = 100) -> list[s.Prediction]:
    """The open questions, the oldest first."""
    rows = worker.rows(states=[OPEN], after=after, limit=limit)
    return [s.Prediction.model_validate(row) for row in rows]


@router.post("/queries/lease", tags=["labelling"])
async def lease(body: s.LeaseRequest, state: Here, token: Annotator, worker: Worker) -> list[Question]:
    """Hold some questions for a while: nobody else is asked them. Call again to renew, or for more."""
    service, stream = state.service, worker.stream
    summary = await asyncio.wrap_future(worker.send(lambda session: session.summary()))
    second: set[int] = set()

    def hold() -> dict[int, tuple[Row, float]]:
        with service.leases.lock:
            again = opinions.second_questions(service.store, stream.id, token.annotator)
            second.update(row.id for row in again)
            rows = {row.id: row for row in [*worker.rows(states=[OPEN], limit=CONSIDERED), *again]}
            held = service.leases.take(stream.id, body.holder, list(rows), body.count, body.first)
        return {id: (rows[id], until) for id, until in held.items()}

    def question(row: Row, until: float) -> Question:
        why = explain(stream, service.store, row, summary, service.budget_of(stream.name))
        prediction = s.Prediction.model_validate(row)
        return Question(prediction=prediction, why=why, until=until, second=row.id in second)

    held = await run_in_threadpool(hold)
    kept = partial(StreamSession.repredict_kept, ids=list(held))  # with what was learned since
    now = await asyncio.wrap_future(worker.send(kept)) if held else {}
    rows = [(replace(row, top=now.get(id, row.top)), until) for id, (row, until) in held.items()]
    return await run_in_threadpool(lambda: [question(*each) for each in rows])


@router.get("/queries/{id}", tags=["questions"])
def show_query(id: Id, worker: Worker) -> s.Prediction:
    """One question, open or not."""
    row = worker.row(id)
    if row.state == UNQUERIED:
        raise NotFoundError(f"Nobody was asked about prediction {id}.")
    return s.Prediction.model_validate(row)


@router.post("/queries/{id}/label", tags=["questions"])
async def label(id: Id, body: s.Label, token: Annotator, worker: Worker, key: Key = None) -> s.Changed:
    """Answer a question. The same answer again changes nothing; another one replaces it."""
    return await change(worker, lambda session: session.label(id, body.by(token), token.id, key))


@router.post("/queries/{id}/skip", tags=["questions"])
async def skip(id: Id, token: Annotator, worker: Worker, key: Key = None) -> s.Changed:
    """Close a question without an answer."""
    return await change(worker, lambda session: session.skip(id, token.id, key))


@router.post("/queries/{id}/undo", tags=["questions"])
async def undo(id: Id, token: Annotator, worker: Worker, key: Key = None) -> s.Changed:
    """Undo an answer or a skip; the question is open again."""
    return await change(worker, lambda session: session.undo(id, token.id, key))


@router.get("/predictions", tags=["questions"])
def list_predictions(
    worker: Worker,
    after: After = -1,
    limit: Limit = 100,
    newest: Annotated[bool, Query(description="The newest first.")] = False,
    labelled: Annotated[bool, Query(description="Those with a label alone.")] = False,
) -> list[s.Prediction]:
    """Recorded predictions."""
    rows = worker.rows(states=LABELLED if labelled else (), after=after, limit=limit, newest=newest)
    return [s.Prediction.model_validate(row) for row in rows]


@router.get("/predictions/{id}", tags=["questions"])
def show_prediction(id: Id, worker: Worker) -> s.Prediction:
    """One prediction and the state of its question."""
    return s.Prediction.model_validate(worker.row(id))


@router.post("/predictions/{id}/label", tags=["labelling"])
async def label_prediction(
    id: Id, body: s.Label, token: Annotator, worker: Worker, key: Key = None
) -> s.Changed:
    """Label an image, with or without a question; the model learns from it."""
    return await change(
        worker, lambda session: session.label(id, body.by(token), token.id, key, unasked=True)
    )


@router.get(
    "/predictions/{id}/image",
    tags=["questions"],
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
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}}},
)
def show_picture(id: Id, worker: Worker, size: Annotated[int, Query(ge=32, le=2048)] = 1600) -> Response:
    """The image as a JPEG, no wider or higher than `size`, while it is kept."""
    image = Image.fromarray(load_image(image_of(worker, id)))
    image.thumbnail((size, size))
    made = io.BytesIO()
    image.save(made, "JPEG", quality=88)
    headers = {"Cache-Control": "private, max-age=86400"}
    return Response(made.getvalue(), media_type="image/jpeg", headers=headers)


def image_of(worker: StreamWorker, id: int) -> bytes:
    return worker.session.store.blobs.read(worker.row(id).image)


def media_type(data: bytes) -> str:
    """From the first bytes, never from what the sender says; nothing a browser would run."""
    for signature, kind in SIGNATURES.items():
        if data.startswith(signature):
            return kind
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else "application/octet-stream"


@router.get("/changes", tags=["labelling"])
async def changes(
    state: Here, worker: Worker, last: Annotated[int, Query(ge=1, le=100)] = 20
) -> Repredictions:
    """Predict the last images again; which predictions changed since the last call."""

    def find() -> list[Row]:
        rows = worker.rows(limit=2 * last, newest=True)
        return [row for row in rows if row.kept and row.state not in LABELLED][:last]

    return await state.repredictor.compare(worker, await run_in_threadpool(find))


@router.put("/twice", tags=[SEVERAL], dependencies=[ADMINISTERS])
def put_twice(body: Twice, worker: Worker, state: Here) -> Twice:
    """Ask a second person about a share of the answered questions; 0 to stop."""
    opinions.ask_twice(state.service.store, worker.stream.id, body.share)
    return body


@router.get("/agreement", tags=[SEVERAL])
def agreement(worker: Worker, state: Here) -> opinions.Agreed:
    """How far annotators agree, what they disagree about, and how they answered what is known."""
    return opinions.agreement_of(state.service.store, worker.stream.id)


@router.post("/predictions/{id}/opinion", tags=[SEVERAL])
async def opinion(id: Id, body: s.Label, token: Annotator, worker: Worker) -> s.Changed:
    """Give a second opinion on an answered question; it is recorded, and nothing is learned from it."""
    act = partial(opinions.give_opinion, id=id, answer=body.by(token), who=token.id)
    return await change(worker, act)


@router.delete("/predictions/{id}/opinion", tags=[SEVERAL])
async def take_back(id: Id, token: Annotator, worker: Worker) -> s.Changed:
    """Take back one's second opinion."""
    empty = Answer(annotator=token.annotator)
    return await change(worker, partial(opinions.give_opinion, id=id, answer=empty, who=token.id))
