"""Downloads: predictions and labels, the images by class, the learner."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from taps.serve import export, review
from taps.serve.dependencies import ADMINISTERS, Here, Worker
from taps.serve.errors import StoreDownError
from taps.serve.service import EXPORT
from taps.serve.store import Store

router = APIRouter(prefix="/v1/streams/{stream}", dependencies=[ADMINISTERS])

CSV, JSONL, ZIP = "text/csv; charset=utf-8", "application/x-ndjson", "application/zip"
CHUNK = 1 << 16


@router.get(
    "/export",
    tags=["export"],
    response_class=Response,
    responses={200: {"content": {"text/csv": {}, JSONL: {}, ZIP: {}}}},
)
def export_stream(
    stream: str,
    worker: Worker,
    what: Annotated[Literal["predictions", "labels"], Query()] = "predictions",
    format: Annotated[
        Literal["csv", "jsonl", "zip"], Query(description="zip: the labelled images, one folder a class.")
    ] = "csv",
) -> Response:
    """Predictions or labels as CSV or JSONL; labelled images as a zip that ImageFolder reads."""
    found, store, name = worker.stream, worker.session.store, f"{stream}-{what}.{format}"
    if format == "zip":
        return _archive(store, name, lambda path: export.as_zip(store, found, path))
    make, kind = (export.as_csv, CSV) if format == "csv" else (export.as_jsonl, JSONL)
    lines = make(export.rows(store, found, labels=what == "labels"))
    return StreamingResponse(lines, media_type=kind, headers=_attachment(name))


@router.get(
    "/result",
    tags=["review"],
    response_class=Response,
    responses={200: {"content": {"text/csv": {}, ZIP: {}}}},
)
def result(
    stream: str, state: Here, format: Annotated[Literal["csv", "zip", "learner"], Query()] = "csv"
) -> Response:
    """The table of all images, the images by class, or the learner."""
    service = state.service
    if format == "learner":
        make = partial(review.learner_zip, service, stream)
        return _archive(service.store, f"{stream}-learner.zip", make)
    beliefs = review.beliefs_of(service, stream)
    if format == "zip":
        make = partial(review.as_zip, service.store, beliefs)
        return _archive(service.store, f"{stream}-images.zip", make)
    table = review.csv_text(review.COLUMNS, [each.cells() for each in beliefs])
    return Response(table, media_type=CSV, headers=_attachment(f"{stream}-predictions.csv"))


def _attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def _archive(store: Store, name: str, make: Callable[[Path], None]) -> StreamingResponse:
    """A file that `make` writes, and that is removed after it was sent."""
    try:
        folder = tempfile.TemporaryDirectory(dir=store.files, prefix=EXPORT)
        path = Path(folder.name) / "export.zip"
        try:
            make(path)
        except BaseException:
            folder.cleanup()
            raise
    except OSError as error:
        raise StoreDownError(f"The archive cannot be written now ({error}).", retry_after=1) from error

    def chunks() -> Iterator[bytes]:
        with folder, path.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk

    return StreamingResponse(chunks(), media_type=ZIP, headers=_attachment(name))
