"""Health checks and metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse

from taps.serve.dependencies import Here, allow, caller
from taps.serve.errors import ServiceError
from taps.serve.stream_worker import StreamWorker
from taps.serve.tokens import ROLES

router = APIRouter(tags=["health"])

GAUGES: dict[str, tuple[str, Callable[[StreamWorker], int]]] = {
    "taps_queue": ("Requests that wait for a stream.", lambda worker: worker.waiting),
    "taps_events": ("Events in a stream's log.", lambda worker: worker.log.seq),
    "taps_replayed": ("Events replayed at the last start.", lambda worker: worker.log.replayed),
    "taps_open_questions": ("Questions that wait for an answer.", lambda worker: len(worker.log.open)),
    "taps_loaded": ("Whether a learner is in memory.", lambda worker: worker.log.loaded),
    "taps_troubled": ("Whether recording a stream fails.", lambda worker: worker.log.trouble is not None),
}


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "alive"}


@router.get(
    "/readyz",
    response_model=dict[str, Any],
    responses={503: {"description": "Not ready, and why.", "content": {"application/json": {}}}},
)
async def readyz(request: Request, state: Here) -> Response:
    """Whether everything can be recorded; if not, why not, for callers with a token."""
    troubles = await run_in_threadpool(state.service.troubles)
    if troubles:
        try:
            await caller(request)
        except ServiceError:
            troubles = ["Send a token to see what is wrong."]
    status = {"status": "troubled" if troubles else "ready", "troubles": troubles}
    return JSONResponse(status, status_code=503 if troubles else 200)


@router.get(
    "/metrics", dependencies=[Depends(allow(*ROLES, everywhere=True))], response_class=PlainTextResponse
)
def metrics(state: Here) -> str:
    """Metrics in the text format of Prometheus."""
    workers = list(state.service.workers.items())
    up = ("Whether everything can be recorded.", [((), int(not state.service.troubles()))])
    streams = {
        name: (help, [((("stream", stream),), read(worker)) for stream, worker in workers])
        for name, (help, read) in GAUGES.items()
    }
    return state.metrics.text({"taps_up": up, **streams})
