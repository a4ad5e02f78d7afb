"""Predict images; recorded predictions, their labels and images, and what answers changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from taps.plain_names import plain_name, seen_letters
from taps.serve import schemas as s
from taps.serve.dependencies import ANNOTATES, TURN, Annotator, Here, Id, Key, Worker, allow
from taps.serve.errors import FormatError, StoreDownError, UnusableError
from taps.serve.event_bus import EventBus
from taps.serve.limits import check_image
from taps.serve.repredict import Repredictions
from taps.serve.stream_session import AnswerResult, Outcome, StreamSession
from taps.serve.stream_worker import StreamWorker
from taps.serve.tokens import Token
from taps.streams.row import LABELLED, OPEN, Row

router = APIRouter(prefix="/v1/streams/{stream}")

SIGNATURES = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG": "image/png",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}
IMAGE: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
FORM = {"schema": {"type": "object", "required": ["image"], "properties": {"image": IMAGE["schema"]}}}
BODY = {"required": True, "content": {"multipart/form-data": FORM, "image/jpeg": IMAGE, "image/png": IMAGE}}
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[int, Query(ge=-1, le=2**31 - 1, description="Only ids above this one.")]


async def change(worker: StreamWorker, act: Callable[[StreamSession], AnswerResult]) -> s.Changed:
    """Have a stream's worker change a question; return what it is now."""
    return s.Changed.model_validate(await asyncio.wrap_future(worker.send(act)))


@router.post("/predict", tags=["predictions"], openapi_extra={"requestBody": BODY})
async def predict(
    request: Request,
    token: Annotated[Token, Depends(allow("predict"))],
    state: Here,
    worker: Worker,
    name: Annotated[
        str | None, Query(max_length=500, pattern=s.NO_NUL, description="Name of the image.")
    ] = None,
    key: Key = None,
) -> s.Answered:
    """Predict one image, sent as the body or as the field `image` of a form."""
    with state.uploads.of(token.share):
        data, called = await read_image(request)
        async with state.checks[token.share]:
            await run_in_threadpool(check_image, data, state.limits)
        called = plain_name(name) if name else called
        act = partial(StreamSession.predict, data=data, name=called, who=token.id, key=key)
        outcome = await asyncio.wrap_future(worker.send(act))
    if outcome.hold and outcome.row.state == OPEN:
        row = await wait_for_annotator(state.service.bus, worker, outcome)
        outcome = Outcome(row, repeated=outcome.repeated)
    return s.Answered.of(outcome)


async def read_image(request: Request) -> tuple[bytes, str]:
    """The image and its name."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        if kind and not kind.startswith("image/") and kind != "application/octet-stream":
            raise FormatError(f"A body of type {kind!r} is no image; send image/… or multipart/form-data.")
        return await request.body(), "image"
    async with request.form(max_files=1, max_fields=4) as form:
        field = form.get("image")
        if not isinstance(field, UploadFile):
            raise UnusableError("The form has no file in the field `image`.")
        return await field.read(), seen_letters(field.filename or "image")[:500]


async def wait_for_annotator(bus: EventBus, worker: StreamWorker, outcome: Outcome) -> Row:
    """The prediction after its question has ended, or as it is after `hold` seconds."""
    loop = asyncio.get_running_loop()
    row, end = outcome.row, loop.time() + outcome.hold
    with bus.subscribe(worker.stream.id) as subscriber:
        with suppress(StoreDownError):  # it may have ended before this subscribed
            row = await run_in_threadpool(worker.row, row.id)
        while row.state == OPEN and (left := end - loop.time()) > 0:
            try:
                news = await asyncio.wait_for(subscriber.news.get(), left)
            except TimeoutError:
                break
            if news is None:  # the stream or the service ends
                break
            _, after = news
            if after is not None and after.id == row.id:
                row = after
    return row


@router.get("/predictions", tags=["questions"], dependencies=[ANNOTATES])
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


@router.get("/predictions/{id}", tags=["questions"], dependencies=[ANNOTATES])
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
    dependencies=[ANNOTATES, TURN],
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
    dependencies=[ANNOTATES, TURN],
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}, "image/webp": {}}}},
)
async def show_picture(
    id: Id, worker: Worker, state: Here, size: Annotated[int, Query(ge=32, le=2048)] = 1600
) -> Response:
    """The image as a JPEG no wider or higher than `size`, or a large WEBP, while it is kept."""
    row = await run_in_threadpool(worker.row, id)
    made = await state.pictures.of(row.image, size, lambda: worker.session.store.blobs.read(row.image))
    return Response(made, media_type=media_type(made), headers={"Cache-Control": "private, max-age=86400"})


def image_of(worker: StreamWorker, id: int) -> bytes:
    return worker.session.store.blobs.read(worker.row(id).image)


def media_type(data: bytes) -> str:
    """From the first bytes, never from what the sender says; nothing a browser would run."""
    for signature, kind in SIGNATURES.items():
        if data.startswith(signature):
            return kind
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else "application/octet-stream"


@router.get("/changes", tags=["labelling"], dependencies=[ANNOTATES])
async def changes(
    state: Here, worker: Worker, last: Annotated[int, Query(ge=1, le=100)] = 20
) -> Repredictions:
    """Predict the last images again; which predictions changed since the last call."""

    def find() -> list[Row]:
        rows = worker.rows(limit=2 * last, newest=True)
        return [row for row in rows if row.kept and row.state not in LABELLED][:last]

    return await state.repredictor.compare(worker, await run_in_threadpool(find))
