"""Learners of a service as actors of a Ray cluster: another place for them, behind the same HTTP front.

Ray decides which machine an actor is on. A stream stays with its actor until it rests, or until the actor or
its machine is lost: then it goes to another one, and the service makes it anew there from what is on record.
"""

from __future__ import annotations

import logging
import pickle
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from taps.clip import load_clip
from taps.cluster.origin import Origin
from taps.cluster.resources import Resources, why_unfit
from taps.evaluate.jobs import ModelSpec
from taps.evaluate.options import Execution
from taps.serve.errors import LostError
from taps.serve.learners import Executor, Learners
from taps.serve.processes import reply

log = logging.getLogger("taps.serve")
START = 60.0  # seconds for the first actors to load the model; later streams go to those that have
LOAD, SAVE = WITH_FILES = ("load", "save")  # calls whose last argument is a folder of the service
LAST = ("evict", "try_out")  # calls after which a stream has nothing at its place

Files = dict[str, bytes]


class Computing:
    """An actor: learners on some machine of the cluster, which need not see the store.

    Args:
        model: Loaded there.
        device: cpu or cuda; a GPU is used if the actor has one.
        origin: Of the service; models may be given by relative paths.
    """

    def __init__(self, model: ModelSpec, device: str | None, origin: Origin) -> None:
        origin.enter()
        origin.check()
        self.learners = Learners(load_clip(model.name, pretrained=model.pretrained, device=device))

    def call(self, act: str, args: tuple[Any, ...], files: Files) -> tuple[bytes, Files]:
        """The reply to a call; files that it loads come with it, and those that it saves go back."""
        if act not in WITH_FILES:
            return reply(self.learners, act, args), {}
        with TemporaryDirectory(prefix="taps-") as name:
            folder = Path(name)
            write_files(folder, files)
            return reply(self.learners, act, (*args, folder)), read_files(folder) if act == SAVE else {}


def read_files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_files(folder: Path, files: Files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


@dataclass(eq=False)
class Actor:
    """One that computes: its handle, what tells that it has loaded the model, and its streams."""

    handle: Any
    ready: Any
    loaded: bool = False
    streams: set[RayExecutor] = field(default_factory=set)


class RayExecutors:
    """Actors wherever the cluster has room, and the streams spread over them.

    Machines that join get actors. Streams that begin, or come back after a rest, go to those with the fewest,
    and so do those of an actor that is lost.

    Args:
        ray: Connected; see `taps.cluster.connect`.
        model: What every actor loads; every machine must see it at the same path.
        count: How many actors at most; as many as there is room for unless given.
        cpus: Of each.
        gpus: Of each; may be a share of one.
        device: cpu or cuda.
    """

    def __init__(
        self,
        ray: Any,
        model: ModelSpec,
        count: int | None = None,
        *,
        cpus: float = 1.0,
        gpus: float = 0.0,
        device: str | None = None,
    ) -> None:
        self.ray, self._count = ray, count
        self._resources = Resources(ray, Execution(cpus_per_run=cpus, gpus_per_run=gpus), log)
        self._make = partial(self._resources.make, Computing, model, device, Origin(Path.cwd()))
        self._lock = threading.Lock()
        self.actors: list[Actor] = []
        self._grow()
        self._ready(START)
        self._resources.check()

    def executor_of(self, stream: int) -> Executor:
        return RayExecutor(self)

    @property
    def trouble(self) -> str | None:
        if self._resources.places():
            return None
        return "No machine of the Ray cluster has room for a process that computes."

    def take(self, stream: RayExecutor) -> Actor:
        """An actor for one more stream: of those that have loaded the model the one with the fewest."""
        with self._lock:
            self._grow()
            ready = self._ready(0)
            if not self.actors:  # none could begin; another one waits for a machine
                self._grow()
            actor = min(ready or self.actors, key=lambda actor: len(actor.streams))
            actor.streams.add(stream)
            return actor

    def lose(self, actor: Actor) -> None:
        with self._lock:
            if actor in self.actors:  # the first one to notice
                log.error("An actor that computes was lost; its streams are made anew from the record.")
                self.actors.remove(actor)
                self.ray.kill(actor.handle)  # it may only be cut off

    def leave(self, stream: RayExecutor) -> None:
        """Nothing of a stream is at its actor any more."""
        with self._lock:
            if stream.actor is not None:
                stream.actor.streams.discard(stream)
                stream.actor = None

    def _grow(self) -> None:
        resources = max(1, self._resources.places())
        for _ in range(min(self._count or resources, resources) - len(self.actors)):
            handle = self._make()
            self.actors.append(Actor(handle, handle.__ray_ready__.remote()))

    def _ready(self, patience: float) -> list[Actor]:
        """Those that have loaded the model; those of machines that cannot are no more."""
        waited = {actor.ready: actor for actor in self.actors if not actor.loaded}
        done = self.ray.wait(list(waited), num_returns=len(waited), timeout=patience)[0] if waited else []
        for each in done:
            self._see(waited[each])
        return [actor for actor in self.actors if actor.loaded]

    def _see(self, actor: Actor) -> None:
        try:
            self.ray.get(actor.ready)
            actor.loaded = True
        except self.ray.exceptions.RayError as error:
            self.actors.remove(actor)
            if unfit := why_unfit(error):
                self._resources.avoid(*unfit)

    def __enter__(self) -> RayExecutors:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self.actors:
            with suppress(Exception):  # it may be lost already
                self.ray.kill(actor.handle)


class RayExecutor:
    """The place of one stream: an actor, another one where that is lost, or after a rest.

    Attributes:
        actor: None before the first call, and where nothing of the stream is anywhere.
    """

    def __init__(self, all: RayExecutors) -> None:
        self._all = all
        self.actor: Actor | None = None

    def call(self, act: str, *args: Any) -> Any:
        if self.actor is not None:
            return self._ask(self.actor, act, args)
        for _ in self._all.actors[1:]:  # a machine has many, and nothing of this stream is there yet
            with suppress(LostError):
                return self._ask(self._all.take(self), act, args)
        return self._ask(self._all.take(self), act, args)

    def _ask(self, actor: Actor, act: str, args: tuple[Any, ...]) -> Any:
        ray, self.actor = self._all.ray, actor
        sent = args[:-1] if act in WITH_FILES else args
        given = read_files(args[-1]) if act == LOAD else {}
        try:
            said, files = ray.get(actor.handle.call.remote(act, sent, given))
        except ray.exceptions.RayActorError as error:
            self._all.lose(actor)
            self.actor = None
            raise LostError("The machine that computed this was lost; try again.", retry_after=1) from error
        if act in LAST:
            self._all.leave(self)
        good, value = pickle.loads(said)
        if good and act == SAVE:
            write_files(args[-1], files)
        if good:
            return value
        raise value
