"""Take everything home."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from taps.serve import export
from taps.serve.auth import allow
from taps.serve.service import EXPORT
from taps.serve.state import state_of

router = APIRouter(prefix="/v1/streams/{stream}", tags=["export"])

MEDIA = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson", "zip": "application/zip"}
CHUNK = 1 << 16


@router.get(
    "/export",
    dependencies=[Depends(allow("admin"))],
    response_class=Response,
    responses={200: {"content": {kind.partition(";")[0]: {} for kind in MEDIA.values()}}},
)
async def export_stream(
    stream: str,
    request: Request,
    what: Annotated[Literal["predictions", "labels"], Query()] = "predictions",
    format: Annotated[
        Literal["csv", "jsonl", "zip"], Query(description="zip: the labelled images, one folder a class.")
    ] = "csv",
) -> Response:
    """Predictions or labels as CSV or JSONL; labelled images as a zip that ImageFolder reads."""
    service = state_of(request).service
    found, store = service.stream(stream), service.store
    headers = {"Content-Disposition": f'attachment; filename="{stream}-{what}.{format}"'}
    if format == "zip":
        folder = tempfile.TemporaryDirectory(dir=store.files, prefix=EXPORT)
        path = Path(folder.name) / "export.zip"
        await run_in_threadpool(export.as_zip, store, found, path)
        return StreamingResponse(_whole(path, folder), media_type=MEDIA[format], headers=headers)
    make = export.as_csv if format == "csv" else export.as_jsonl
    return StreamingResponse(
        make(store, found, labels=what == "labels"), media_type=MEDIA[format], headers=headers
    )


def _whole(path: Path, folder: tempfile.TemporaryDirectory[str]) -> Iterator[bytes]:
    with folder, path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
