"""For those who watch over the service."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from taps.serve.auth import allow
from taps.serve.state import state_of
from taps.serve.tokens import ROLES

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """The process lives and answers."""
    return {"status": "alive"}


@router.get(
    "/readyz",
    response_model=dict[str, Any],
    responses={503: {"description": "Not ready, and why.", "content": {"application/json": {}}}},
)
def readyz(request: Request) -> Response:
    """Whether everything that comes in can be put on record; if not, why not."""
    troubles = state_of(request).service.troubles()
    status = {"status": "troubled" if troubles else "ready", "troubles": troubles}
    return JSONResponse(status, status_code=503 if troubles else 200)


@router.get(
    "/metrics", dependencies=[Depends(allow(*ROLES, everywhere=True))], response_class=PlainTextResponse
)
def metrics(request: Request) -> str:
    """Prometheus' text format."""
    state = state_of(request)
    owners = list(state.service.owners.items())
    named = [((("stream", name),), owner) for name, owner in owners]
    keepers = [(label, owner.live.keeper) for label, owner in named]
    return state.metrics.text(
        {
            "taps_up": (
                "Whether everything can be put on record.",
                [((), int(not state.service.troubles()))],
            ),
            "taps_queue": ("Requests that wait for a stream.", [(label, o.waiting) for label, o in named]),
            "taps_events": ("Events in a stream's log.", [(label, k.seq) for label, k in keepers]),
            "taps_replayed": (
                "Events replayed at the last start.",
                [(label, k.replayed) for label, k in keepers],
            ),
            "taps_open_questions": (
                "Questions that wait for an answer.",
                [(label, len(k.open)) for label, k in keepers],
            ),
            "taps_loaded": (
                "Whether a learner is in memory.",
                [(label, int(k.loaded)) for label, k in keepers],
            ),
            "taps_troubled": (
                "Whether a stream's events cannot be recorded.",
                [(label, int(k.trouble is not None)) for label, k in keepers],
            ),
        }
    )
