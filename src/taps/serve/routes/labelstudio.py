"""Label Studio's ML-backend protocol: /health, /setup, /predict, /webhook under /label-studio."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from fastapi.concurrency import run_in_threadpool

from taps.errors import TapsError
from taps.serve.dependencies import Here, allow
from taps.serve.errors import NotFoundError, UnusableError
from taps.serve.labelstudio import LabelStudio, Project, stream_of

log = logging.getLogger("taps.serve")

TEACHING, DELETED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"), "ANNOTATIONS_DELETED"


async def _studio(state: Here) -> LabelStudio:
    if state.studio is None:
        raise NotFoundError("No Label Studio is configured; start with `taps serve --label-studio URL`.")
    return state.studio


Sent = Annotated[dict[str, Any], Body()]
Studio = Annotated[LabelStudio, Depends(_studio)]
ADMIN = [Depends(allow("admin", everywhere=True))]
router = APIRouter(prefix="/label-studio", include_in_schema=False, dependencies=ADMIN)


@router.get("/health")
async def health() -> dict[str, str]:
    """Whether the service answers."""
    return {"status": "UP", "model_class": "TAPS"}


@router.post("/setup")
def setup(body: Sent, state: Here, studio: Studio) -> dict[str, str]:
    """Connect a project: its stream is created, its access token kept in memory."""
    studio.token = studio.token or str(body.get("access_token") or "")
    made = studio.project(state.service, state.limits, body.get("project"), body.get("schema"))
    return {"model_version": made.name}


@router.post("/predict")
def predict(body: Sent, state: Here, studio: Studio) -> dict[str, Any]:
    """Predict tasks, in their order; one whose image cannot be fetched or read has no result."""
    found = studio.project(state.service, state.limits, body.get("project"), body.get("label_config"))
    return {"results": [_one(found, task) for task in _objects(body, "tasks")]}


@router.post("/webhook", status_code=202)
async def webhook(body: Sent, state: Here, studio: Studio) -> dict[str, str]:
    """Take in an annotation that was made, changed or deleted: acknowledged at once, learned afterwards."""
    action, project = body.get("action"), _object(body, "project")
    if action not in (*TEACHING, DELETED):
        return {"status": "ignored"}
    found = studio.projects.get(stream_of(project.get("id")))
    if found is None:
        given = state.service, state.limits, project.get("id"), project.get("label_config")
        found = await run_in_threadpool(studio.project, *given)
    if action == DELETED:
        for each in _objects(body, "annotations"):
            studio.in_order.submit(_try, found, "forgotten", each, partial(found.forget, each.get("id")))
    else:
        annotation = _object(body, "annotation")
        learn = partial(found.learn, _object(body, "task"), annotation)
        studio.in_order.submit(_try, found, "learned", annotation, learn)
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


def _one(project: Project, task: dict[str, Any]) -> dict[str, Any]:
    try:
        return project.predict(task)
    except (TapsError, OSError, KeyError) as error:
        log.warning(f"Task {task.get('id')} has no prediction: {error}", extra={"stream": project.name})
        return {"result": [], "score": 0.0}


def _try(project: Project, word: str, annotation: dict[str, Any], act: Callable[[], object]) -> None:
    try:
        act()
    except (TapsError, OSError, KeyError) as error:
        number = annotation.get("id")
        log.error(f"Annotation {number} was not {word}: {error}", extra={"stream": project.name})
