"""Label Studio's ML-backend protocol: /health, /setup, /predict, /webhook under /label-studio."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from fastapi.concurrency import run_in_threadpool

from taps.errors import TapsError
from taps.serve.auth import allow
from taps.serve.errors import NotFoundError, UnusableError
from taps.serve.labelstudio import LabelStudio, stream_of
from taps.serve.state import State, state_of

log = logging.getLogger("taps.serve")

TEACHING, DELETED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"), "ANNOTATIONS_DELETED"


ALLOWED = allow("admin", everywhere=True)
router = APIRouter(prefix="/label-studio", include_in_schema=False, dependencies=[Depends(ALLOWED)])

Sent = Annotated[dict[str, Any], Body()]


@router.get("/health")
async def health() -> dict[str, str]:
    """It is there."""
    return {"status": "UP", "model_class": "TAPS"}


@router.post("/setup")
async def setup(body: Sent, request: Request) -> dict[str, str]:
    """A project is connected: its stream is begun, its access token kept in memory."""
    state, studio = _studio(request)
    studio.token = studio.token or str(body.get("access_token") or "")
    name = await run_in_threadpool(
        studio.stream, state.service, str(body.get("project")), str(body.get("schema"))
    )
    return {"model_version": name}


@router.post("/predict")
async def predict(body: Sent, request: Request) -> dict[str, Any]:
    """Predictions for some tasks, in their order; one that cannot be fetched or read has no result."""
    state, studio = _studio(request)

    def work() -> list[dict[str, Any]]:
        name = studio.stream(state.service, str(body.get("project")), str(body.get("label_config")))
        return [_one(state, studio, name, task) for task in _objects(body, "tasks")]

    return {"results": await run_in_threadpool(work)}


@router.post("/webhook", status_code=202)
async def webhook(body: Sent, request: Request) -> dict[str, str]:
    """An annotation that was made, changed or deleted: answered at once, learnt or forgotten afterwards."""
    state, studio = _studio(request)
    action, project = body.get("action"), _object(body, "project")
    if action not in (*TEACHING, DELETED):
        return {"status": "ignored"}
    name = stream_of(project.get("id"))
    if name not in studio.configs:
        config = str(project.get("label_config"))
        await run_in_threadpool(studio.stream, state.service, str(project.get("id")), config)
    if action == DELETED:
        for each in _objects(body, "annotations"):
            forget = partial(studio.forget, state.service, name, each.get("id"))
            studio.in_order.submit(_try, name, "forgotten", each, forget)
        return {"status": "taken"}
    task, annotation = _object(body, "task"), _object(body, "annotation")
    learn = partial(studio.learn, state.service, name, task, annotation, state.limits)
    studio.in_order.submit(_try, name, "learnt", annotation, learn)
    return {"status": "taken"}


def _object(body: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of a body, empty where there is none."""
    found = body.get(name) or {}
    if not isinstance(found, dict):
        raise UnusableError(f"{name} is {found!r:.40}; Label Studio sends an object.")
    return found


def _objects(body: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = body.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UnusableError(f"{name} is {found!r:.40}; Label Studio sends a list of objects.")
    return found


def _one(state: State, studio: LabelStudio, name: str, task: dict[str, Any]) -> dict[str, Any]:
    try:
        return studio.predict(state.service, name, task, state.limits)
    except (TapsError, OSError, KeyError) as error:
        log.warning(f"Task {task.get('id')} has no prediction: {error}", extra={"stream": name})
        return {"result": [], "score": 0.0}


def _try(name: str, word: str, annotation: dict[str, Any], act: Callable[[], object]) -> None:
    try:
        act()
    except (TapsError, OSError, KeyError) as error:
        number = annotation.get("id")
        log.error(f"Annotation {number} was not {word}: {error}", extra={"stream": name})


def _studio(request: Request) -> tuple[State, LabelStudio]:
    state = state_of(request)
    if state.studio is None:
        raise NotFoundError("No Label Studio is named here; start with `taps serve --label-studio URL`.")
    return state, state.studio
