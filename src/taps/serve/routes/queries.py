"""Questions and the answers to them; predictions on record and their images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from taps.serve import schemas as s
from taps.serve.auth import allow
from taps.serve.errors import NotFoundError
from taps.serve.state import state_of
from taps.serve.stream_session import AnswerResult, StreamSession
from taps.serve.tokens import Token
from taps.session.row import LABELLED, OPEN, UNQUERIED

router = APIRouter(prefix="/v1/streams/{stream}", tags=["questions"])

Annotator = Annotated[Token, Depends(allow("label"))]
Id = Annotated[int, Path(ge=0, le=2**31 - 1)]
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[int, Query(ge=-1, le=2**31 - 1, description="Only ids above this one.")]
Key = Annotated[str | None, Header(min_length=1, max_length=200)]


@router.get("/queries", dependencies=[Depends(allow("label"))])
def list_queries(stream: str, request: Request, after: After = -1, limit: Limit = 100) -> list[s.Prediction]:
    """The questions that wait for an answer, the oldest first."""
    service = state_of(request).service
    rows = service.store.predictions(service.stream(stream).id, states=[OPEN], after=after, limit=limit)
    return [s.Prediction.of(row) for row in rows]


@router.get("/queries/{id}", dependencies=[Depends(allow("label"))])
def show_query(stream: str, id: Id, request: Request) -> s.Prediction:
    """One question, open or not."""
    found = show_prediction(stream, id, request)
    if found.state == UNQUERIED:
        raise NotFoundError(f"Nobody was asked about prediction {id}.")
    return found


@router.post("/queries/{id}/label")
async def label(
    stream: str, id: Id, body: s.Label, request: Request, token: Annotator, idempotency_key: Key = None
) -> s.Changed:
    """Answer a question. The same answer again changes nothing; another one takes its place."""
    return await change(
        request, stream, lambda session: session.label(id, body.by(token), token.id, idempotency_key)
    )


@router.post("/queries/{id}/skip")
async def skip(
    stream: str, id: Id, request: Request, token: Annotator, idempotency_key: Key = None
) -> s.Changed:
    """Close a question without an answer."""
    return await change(request, stream, lambda session: session.skip(id, token.id, idempotency_key))


@router.post("/queries/{id}/undo")
async def undo(
    stream: str, id: Id, request: Request, token: Annotator, idempotency_key: Key = None
) -> s.Changed:
    """Take an answer or a skip back; the question is open again."""
    return await change(request, stream, lambda session: session.undo(id, token.id, idempotency_key))


@router.get("/predictions", dependencies=[Depends(allow("label"))])
def list_predictions(
    stream: str,
    request: Request,
    after: After = -1,
    limit: Limit = 100,
    newest: Annotated[bool, Query(description="The newest first.")] = False,
    labelled: Annotated[bool, Query(description="Those with a label alone.")] = False,
) -> list[s.Prediction]:
    """Predictions on record."""
    service, states = state_of(request).service, LABELLED if labelled else ()
    rows = service.store.predictions(
        service.stream(stream).id, states=states, after=after, limit=limit, newest=newest
    )
    return [s.Prediction.of(row) for row in rows]


@router.get("/predictions/{id}", dependencies=[Depends(allow("label"))])
def show_prediction(stream: str, id: Id, request: Request) -> s.Prediction:
    """One prediction and what became of its question."""
    service = state_of(request).service
    return s.Prediction.of(service.store.prediction(service.stream(stream).id, id))


@router.get(
    "/predictions/{id}/image",
    dependencies=[Depends(allow("label"))],
    response_class=Response,
    responses={200: {"content": {"image/*": {}}}},
)
def show_image(stream: str, id: Id, request: Request) -> Response:
    """The image as it was sent, while it is kept."""
    data = image_of(stream, id, request)
    return Response(data, media_type=media_type(data), headers={"Cache-Control": "private, max-age=3600"})


def image_of(stream: str, id: int, request: Request) -> bytes:
    service = state_of(request).service
    return service.store.blobs.read(service.store.prediction(service.stream(stream).id, id).image)


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


async def change(request: Request, stream: str, act: Callable[[StreamSession], AnswerResult]) -> s.Changed:
    """Have the worker of a stream change a question, and tell what it is now."""
    given = await asyncio.wrap_future(state_of(request).service.send(stream, act))
    return s.Changed(prediction=s.Prediction.of(given.row), changed=given.changed)
