"""The HTTP application: its routes, and each error as one sentence in `detail`."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.formparsers import MultiPartParser
from starlette.requests import ClientDisconnect

import taps
from taps.errors import ClassNameError, ImageError, QueryError, SettingsError, StateError, TapsError
from taps.serve import labelstudio
from taps.serve.dependencies import State
from taps.serve.errors import ServiceError
from taps.serve.middleware import SecurityMiddleware
from taps.serve.routes import access, events, export, health, pages, predictions, questions, review, streams
from taps.serve.schemas import IN_WORDS

log = logging.getLogger("taps.serve")

STATUS: dict[type[Exception], int] = {
    ImageError: 422,
    ClassNameError: 422,
    SettingsError: 422,
    QueryError: 409,
    StateError: 503,
}  # of errors that are not the service's own
SENTENCE = {"type": "object", "required": ["detail"], "properties": {"detail": {"type": "string"}}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {
        "description": "Refused; `detail` says why in one sentence.",
        "content": {"application/json": {"schema": SENTENCE}},
    }
    for code in (400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 429, 503)
}
bearer = HTTPBearer(auto_error=False, description="Made by `taps token create`.")


def make_app(state: State) -> FastAPI:
    """The application of one service."""
    app = FastAPI(
        title="TAPS",
        version=taps.__version__,
        description="Predicts images, asks annotators about uncertain ones, and learns from their answers.",
        docs_url=None,  # FastAPI's pages load scripts from other hosts
        redoc_url=None,
        openapi_url=None,  # see `pages.openapi`
        responses=PROBLEMS,
        dependencies=[Depends(bearer)],
    )
    app.state.taps = state
    # A form is held in memory, as a body is; nothing is written outside the store.
    MultiPartParser.spool_max_size = state.limits.body
    for module in (
        streams,
        predictions,
        questions,
        review,
        export,
        events,
        access,
        health,
        pages,
        labelstudio,
    ):
        app.include_router(module.router)
    app.add_exception_handler(TapsError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_fields)
    app.add_exception_handler(ClientDisconnect, _leave)
    app.add_exception_handler(Exception, _break)
    app.add_middleware(SecurityMiddleware, state=state)
    return app


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    detail = {"detail": str(error)}
    if isinstance(error, ServiceError):
        return JSONResponse(detail, status_code=error.status, headers=error.headers)
    return JSONResponse(detail, status_code=STATUS.get(type(error), 400))


async def _refuse_fields(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = [_problem(each) for each in error.errors()]
    return JSONResponse({"detail": "; ".join(problems)[:2000]}, status_code=422)


def _problem(error: dict[str, Any]) -> str:
    """Which field is wrong, and why."""
    if error["type"] == "json_invalid":
        return f"The body is not JSON: {error['ctx']['error']} at character {error['loc'][-1]}"
    if error["type"] == "model_attributes_type":
        return "Send a JSON object, with the header `Content-Type: application/json`."
    problem = "unknown field" if error["type"] == "extra_forbidden" else error["msg"]
    if error["type"] == "string_pattern_mismatch":
        problem = IN_WORDS[error["ctx"]["pattern"]]
    return f"{'.'.join(str(part) for part in error['loc'])}: {problem}"


async def _leave(request: Request, error: Exception) -> JSONResponse:
    """The client is gone and reads no response; this gives the log line its status."""
    return JSONResponse({"detail": "The connection ended before the body was whole."}, status_code=400)


async def _break(request: Request, error: Exception) -> JSONResponse:
    log.error(f"{type(error).__name__}: {error}", exc_info=error)
    return JSONResponse({"detail": "Internal error. Details are in the service's log."}, status_code=500)
