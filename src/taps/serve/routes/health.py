"""Health checks."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from taps.serve.dependencies import Here, caller
from taps.serve.errors import ServiceError

router = APIRouter(tags=["health"])


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
