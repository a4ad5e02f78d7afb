"""Label Studio's ML-backend protocol: its tasks are images of a stream, its annotations answers.

The routes /health, /setup, /predict and /webhook are under /label-studio.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree

from fastapi import APIRouter, Body, Depends
from fastapi.concurrency import run_in_threadpool

from taps.default import METHOD
from taps.errors import TapsError
from taps.serve.dependencies import Here, allow
from taps.serve.errors import ConflictError, ForbiddenError, NotFoundError, UnusableError
from taps.serve.limits import check_image
from taps.serve.options import Limits
from taps.serve.records import StreamConfig
from taps.serve.service import Service
from taps.serve.stream_session import Outcome, StreamSession
from taps.streams.row import LABELLED

log = logging.getLogger("taps.serve")

T = TypeVar("T")
WHO = "label-studio"
TEACHING, DELETED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"), "ANNOTATIONS_DELETED"
LENT = 120.0  # seconds that an access token is used; Label Studio's are good for five minutes
HINT = "; give LABEL_STUDIO_API_KEY an access token from its page Account & Settings."
SETTINGS = {"recent": 1000}


@dataclass(frozen=True)
class Config:
    """Of a project's labelling configuration: the control that sets the class, its image, and the classes."""

    control: str
    object: str
    value: str
    classes: list[str]


@dataclass
class LabelStudio:
    """One Label Studio whose projects are served; images are fetched from there and from `hosts` alone.

    Attributes:
        token: Its access token, personal or legacy; the one it sends with /setup unless given.
        hosts: Other hosts (with port) that images may come from; they get no token.
        projects: Those that are served, by stream.
        in_order: Handles webhooks in the order in which they came.
    """

    url: str
    token: str = ""
    hosts: tuple[str, ...] = ()
    projects: dict[str, Project] = field(default_factory=dict)
    in_order: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "label-studio"))
    _lent: tuple[str, float] = ("", 0.0)

    def __post_init__(self) -> None:
        import httpx  # noqa: F401  # where it is missing, the service does not start

    def fetch(self, address: str, limits: Limits) -> bytes:
        """The image of a task. Redirects are not followed: they could lead anywhere."""
        import httpx

        try:
            target = urljoin(self.url.rstrip("/") + "/", address)
            home, there = urlsplit(self.url), urlsplit(target)
        except ValueError as error:
            raise UnusableError(f"{address!r} is not the address of an image: {error}.") from None
        at_home = (home.scheme, home.netloc) == (there.scheme, there.netloc)
        if not at_home and not (there.scheme in ("http", "https") and there.netloc in self.hosts):
            allowed = ", ".join((home.netloc, *self.hosts))
            raise ForbiddenError(
                f"Images come from {allowed} alone, not from {there.netloc!r}; --image-hosts allows others."
            )
        headers = {"Authorization": self._authorization()} if at_home and self.token else {}
        try:
            data = _download(target, headers, limits.body, HINT if at_home else ".")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnusableError(f"{there.path} could not be fetched: {error}.") from error
        check_image(data, limits)
        return data

    def _authorization(self) -> str:
        """The header of a request: a legacy token itself, or what a personal one (a JWT) is exchanged for."""
        import httpx

        if self.token.count(".") != 2:
            return f"Token {self.token}"
        token, until = self._lent
        if time.monotonic() >= until:
            address = urljoin(self.url.rstrip("/") + "/", "api/token/refresh/")
            try:
                answer = httpx.post(address, json={"refresh": self.token}, timeout=30)
            except httpx.HTTPError as error:
                raise UnusableError(f"Label Studio could not be asked for a token: {error}.") from error
            if answer.status_code != 200:
                raise UnusableError(f"Label Studio does not take the access token{HINT}")
            token = str(answer.json()["access"])
            self._lent = token, time.monotonic() + LENT
        return f"Bearer {token}"

    def project(self, service: Service, limits: Limits, number: object, config: object) -> Project:
        """A project and its stream, created where there is none; classes that were added there are added."""
        name, found = stream_of(number), read_config(str(config))
        if name not in service.workers:
            with suppress(ConflictError):  # another request was quicker
                service.create(StreamConfig(name, found.classes, METHOD, dict(SETTINGS), 0, None, 0.0), WHO)

        def grow(session: StreamSession) -> None:
            known = session.summary()["classes"]
            if new := [each for each in found.classes if each not in known]:
                session.add_classes(new, WHO)

        service.send(name, grow).result()
        self.projects[name] = Project(self, service, limits, name, found)
        return self.projects[name]


@dataclass(frozen=True)
class Project:
    """A project of a Label Studio: its tasks are images of a stream, its annotations answers."""

    studio: LabelStudio
    service: Service
    limits: Limits
    name: str
    config: Config

    def predict(self, task: dict[str, Any]) -> dict[str, Any]:
        """A prediction in Label Studio's form."""
        data = self._fetch(task)
        outcome = self._predict(task, data)
        label, probability = outcome.row.label, outcome.row.probability
        if outcome.repeated:
            again = self._send(partial(StreamSession.repredict, row=outcome.row, data=data))
            label, probability = again.label, again.probability
        value, config = {"choices": [label]}, self.config
        result = {"from_name": config.control, "to_name": config.object, "type": "choices", "value": value}
        return {"result": [result], "score": probability, "model_version": self.name}

    def learn(self, task: dict[str, Any], annotation: dict[str, Any]) -> None:
        """Learn an annotation; one that no longer names a class is forgotten."""
        label = label_of(annotation, self.config.control)
        if label is None:
            self.forget(annotation.get("id"))
            return
        data = self._fetch(task)
        act = partial(StreamSession.label, label=label, who=who(annotation.get("id")), unasked=True)
        try:
            self._send(partial(act, id=self._predict(task, data).row.id))
        except ConflictError:  # the learner no longer holds the image: it is predicted anew
            row = self._predict(task, data, more=f":{uuid.uuid4().hex[:8]}").row
            self._send(partial(act, id=row.id))

    def forget(self, annotation: object) -> None:
        """Undo the answer of an annotation, unless another one has replaced it."""
        author, worker = who(annotation), self.service.worker(self.name)

        def undo(session: StreamSession, id: int) -> None:
            if worker.row(id).ended_by == author:
                session.undo(id, WHO)

        for row in worker.rows(states=LABELLED):
            if row.ended_by == author:
                self._send(partial(undo, id=row.id))

    def _fetch(self, task: dict[str, Any]) -> bytes:
        return self.studio.fetch(str(task["data"][self.config.value]), self.limits)

    def _predict(self, task: dict[str, Any], data: bytes, more: str = "") -> Outcome:
        name, key = f"task {task['id']}", f"{WHO}:{task['id']}{more}"
        return self._send(partial(StreamSession.predict, data=data, name=name, who=WHO, key=key))

    def _send(self, act: Callable[[StreamSession], T]) -> T:
        return self.service.send(self.name, act).result()


def _download(target: str, headers: dict[str, str], most: int, hint: str) -> bytes:
    """The file at a URL, up to `most` bytes; where it is refused, the error ends with the hint."""
    import httpx

    data, path = bytearray(), urlsplit(target).path
    with httpx.stream("GET", target, headers=headers, timeout=30) as response:
        if response.status_code != 200:
            end = hint if response.status_code in (401, 403) else "."
            raise UnusableError(f"{path} could not be fetched: status {response.status_code}{end}")
        for part in response.iter_bytes():
            data += part
            if len(data) > most:
                raise UnusableError(f"{path} is over {most:,} bytes.")
    return bytes(data)


def stream_of(project: object) -> str:
    """The stream of a project, from its number; Label Studio also sends "number.time".

    >>> stream_of(7), stream_of("7.1700000000")
    ('label-studio-7', 'label-studio-7')
    """
    number = str(project).partition(".")[0]
    if not re.fullmatch(r"[0-9]{1,12}", number):
        raise UnusableError(f"{project!r} is not the number of a project.")
    return f"label-studio-{number}"


def who(annotation: object) -> str:
    """The author of an answer: one annotation, by its number."""
    return f"{WHO} annotation {annotation}"


def read_config(text: str) -> Config:
    """The first <Choices> of a labelling configuration, and the <Image> it is about."""
    if "<!" in text.replace("<!--", ""):  # entities could expand without end
        raise UnusableError("A labelling configuration with a document type is not taken.")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise UnusableError(f"The labelling configuration cannot be read: {error}.") from None
    images = {each.get("name"): (each.get("value") or "").lstrip("$") for each in root.iter("Image")}
    for choices in root.iter("Choices"):
        value = images.get(choices.get("toName"))
        classes = [each.get("value") or "" for each in choices.iter("Choice")]
        if value and len(classes) > 1 and all(classes):
            return Config(choices.get("name") or "", choices.get("toName") or "", value, classes)
    raise UnusableError("The project needs <Choices> of two classes or more for an <Image>.")


def label_of(annotation: dict[str, Any], control: str) -> str | None:
    """The class an annotation names; None where the task was skipped."""
    for result in [] if annotation.get("was_cancelled") else annotation.get("result") or []:
        if result.get("from_name") == control and (choices := result.get("value", {}).get("choices")):
            return str(choices[0])
    return None


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
