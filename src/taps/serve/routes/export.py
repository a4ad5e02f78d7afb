"""Take everything home."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from taps.serve import export
from taps.serve.errors import StoreDownError
from taps.serve.routes.given import ADMINISTERS, Worker
from taps.serve.service import EXPORT
from taps.serve.store import Store

router = APIRouter(prefix="/v1/streams/{stream}", tags=["export"])

MEDIA = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson", "zip": "application/zip"}
CHUNK = 1 << 16
ARCHIVE = "export.zip"


@router.get(
    "/export",
    dependencies=ADMINISTERS,
    response_class=Response,
    responses={200: {"content": {kind.partition(";")[0]: {} for kind in MEDIA.values()}}},
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
    found, store = worker.stream, worker.session.store
    headers = attached(f"{stream}-{what}.{format}")
    if format == "zip":
        made = archived(store, lambda path: export.as_zip(store, found, path))
        return StreamingResponse(in_chunks(made), media_type=MEDIA[format], headers=headers)
    make = export.as_csv if format == "csv" else export.as_jsonl
    return StreamingResponse(
        make(store, found, labels=what == "labels"), media_type=MEDIA[format], headers=headers
    )


def attached(name: str) -> dict[str, str]:
    """Headers of a file that is saved under a name."""
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def archived(store: Store, make: Callable[[Path], None]) -> tempfile.TemporaryDirectory[str]:
    """A folder with an archive in it, which `make` writes."""
    try:
        folder = tempfile.TemporaryDirectory(dir=store.files, prefix=EXPORT)
        try:
            make(Path(folder.name) / ARCHIVE)
        except BaseException:
            folder.cleanup()
            raise
    except OSError as error:
        raise StoreDownError(f"The archive cannot be written now ({error}).", retry_after=1) from error
    return folder


def in_chunks(folder: tempfile.TemporaryDirectory[str]) -> Iterator[bytes]:
    """The archive in a folder, which goes afterwards."""
    with folder, (Path(folder.name) / ARCHIVE).open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
