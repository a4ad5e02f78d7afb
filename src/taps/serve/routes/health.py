"""For those who watch over the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse

from taps.serve.auth import allow, caller
from taps.serve.errors import ServiceError
from taps.serve.routes.given import Here
from taps.serve.stream_worker import StreamWorker
from taps.serve.tokens import ROLES

router = APIRouter(tags=["health"])

GAUGES: dict[str, tuple[str, Callable[[StreamWorker], int]]] = {
    "taps_queue": ("Requests that wait for a stream.", lambda worker: worker.waiting),
    "taps_events": ("Events in a stream's log.", lambda worker: worker.log.seq),
    "taps_replayed": ("Events replayed at the last start.", lambda worker: worker.log.replayed),
    "taps_open_questions": ("Questions that wait for an answer.", lambda worker: len(worker.log.open)),
    "taps_loaded": ("Whether a learner is in memory.", lambda worker: worker.log.loaded),
    "taps_troubled": (
        "Whether a stream's events cannot be recorded.",
        lambda worker: worker.log.trouble is not None,
    ),
}


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process lives and answers."""
    return {"status": "alive"}


@router.get(
    "/readyz",
    response_model=dict[str, Any],
    responses={503: {"description": "Not ready, and why.", "content": {"application/json": {}}}},
)
async def readyz(request: Request, state: Here) -> Response:
    """Whether everything that comes in can be put on record; if not, why not, for those who have a token."""
    troubles = await run_in_threadpool(state.service.troubles)
    if troubles:
        try:
            await caller(request)
        except ServiceError:
            troubles = ["Send a token to be told what is wrong."]
    status = {"status": "troubled" if troubles else "ready", "troubles": troubles}
    return JSONResponse(status, status_code=503 if troubles else 200)


@router.get(
    "/metrics", dependencies=[Depends(allow(*ROLES, everywhere=True))], response_class=PlainTextResponse
)
def metrics(state: Here) -> str:
    """Prometheus' text format."""
    workers = list(state.service.workers.items())
    up = ("Whether everything can be put on record.", [((), int(not state.service.troubles()))])
    streams = {
        name: (told, [((("stream", stream),), read(worker)) for stream, worker in workers])
        for name, (told, read) in GAUGES.items()
    }
    return state.metrics.text({"taps_up": up, **streams})
