"""Predict one image."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from taps.serve import schemas as s
from taps.serve.dependencies import Here, Key, Worker, allow
from taps.serve.errors import FormatError, StoreDownError, UnusableError
from taps.serve.event_bus import EventBus
from taps.serve.limits import check_image
from taps.serve.stream_session import Outcome, StreamSession
from taps.serve.stream_worker import StreamWorker
from taps.serve.tokens import Token
from taps.session.row import OPEN, Row

router = APIRouter(prefix="/v1/streams/{stream}", tags=["predictions"])

IMAGE: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
FORM = {"schema": {"type": "object", "required": ["image"], "properties": {"image": IMAGE["schema"]}}}
CONTENT = {"multipart/form-data": FORM, "image/jpeg": IMAGE, "image/png": IMAGE}


@router.post("/predict", openapi_extra={"requestBody": {"required": True, "content": CONTENT}})
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
        check_image(data, state.limits)
        act = partial(StreamSession.predict, data=data, name=name or called, who=token.id, key=key)
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
        return await field.read(), (field.filename or "image").replace("\0", "")[:500]


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
