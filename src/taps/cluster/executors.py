"""Executors of a service whose learners live in actors of a Ray cluster.

Ray decides which machine an actor is on. A stream stays with its actor until it is unloaded, or until the
actor or its machine is lost: then another actor takes it, and the service restores it from the store.
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from taps.cluster.machines import Origin, Resources, why_unfit
from taps.disk import temporary_folder, write_bytes
from taps.model.clip import load_clip
from taps.serve.errors import LostError
from taps.serve.learners import Executor, Learners, R, Ts, reply
from taps.study.evaluate.jobs import ModelSpec
from taps.study.evaluate.options import Execution

log = logging.getLogger("taps.serve")
START = 60.0  # seconds for the first actors to load the model; later streams go to those that have
WITH_FILES = (Learners.load, Learners.save)  # calls whose last argument is a folder of the service
LAST = (Learners.evict, Learners.try_out)  # calls after which an actor has nothing of the stream

Files = dict[str, bytes]
Act = Callable[..., Any]


class Computing:
    """An actor: learners on a machine of the cluster, which need not see the store."""

    def __init__(self, model: ModelSpec, device: str | None, origin: Origin) -> None:
        origin.enter()
        origin.check()
        self.learners = Learners(load_clip(model.name, pretrained=model.pretrained, device=device))

    def call(self, act: Act, args: tuple[Any, ...], files: Files) -> tuple[bytes, Files]:
        """The reply to a call. Files to load come with the call; saved files go back with the reply."""
        if act not in WITH_FILES:
            return reply(self.learners, act, args), {}
        with temporary_folder() as folder:
            write_files(folder, files)
            return reply(self.learners, act, (*args, folder)), read_files(
                folder
            ) if act == Learners.save else {}


def read_files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_files(folder: Path, files: Files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write_bytes(folder / name, data)


@dataclass(eq=False)
class Actor:
    """An actor's handle, the reference that is ready once it has loaded the model, and its streams."""

    handle: Any
    ready: Any
    loaded: bool = False
    streams: set[RayExecutor] = field(default_factory=set)


class RayExecutors:
    """Actors wherever the cluster has room, and the streams spread over them.

    Machines that join get actors. A stream that is loaded goes to the actor with the fewest streams.

    Args:
        ray: Connected; see `taps.cluster.connect`.
        model: What every actor loads; every machine must see it at the same path.
        count: How many actors at most; as many as there is room for unless given.
        how: Cores, GPUs and device of each actor.
    """

    def __init__(
        self, ray: Any, model: ModelSpec, count: int | None = None, how: Execution = Execution()
    ) -> None:
        self.ray, self._count = ray, count
        self._resources = Resources(ray, how, log)
        self._make = partial(self._resources.make, Computing, model, how.device, Origin(Path.cwd()))
        self._lock = threading.Lock()
        self.actors: list[Actor] = []
        self._grow()
        self._ready(START)
        self._resources.check()

    def executor_of(self, stream: int) -> Executor:
        return RayExecutor(self)

    def take(self, stream: RayExecutor) -> Actor:
        """The actor for one more stream: of those that have loaded the model the one with the fewest."""
        with self._lock:
            self._grow()
            ready = self._ready(0)
            if not self.actors:  # none could start; another one waits for a machine
                self._grow()
            actor = min(ready or self.actors, key=lambda actor: len(actor.streams))
            actor.streams.add(stream)
            return actor

    def lose(self, actor: Actor) -> None:
        with self._lock:
            if actor in self.actors:  # the first one to notice
                log.error("A computing actor was lost; its streams are restored from the store.")
                self.actors.remove(actor)
                self.ray.kill(actor.handle)  # it may only be cut off

    def leave(self, stream: RayExecutor) -> None:
        """Its actor has nothing of the stream any more."""
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
        """The actors that have loaded the model; those that could not start are dropped."""
        waited = {actor.ready: actor for actor in self.actors if not actor.loaded}
        done = self.ray.wait(list(waited), num_returns=len(waited), timeout=patience)[0] if waited else []
        for reference in done:
            actor = waited[reference]
            try:
                self.ray.get(reference)
                actor.loaded = True
            except self.ray.exceptions.RayError as error:
                self.actors.remove(actor)
                if unfit := why_unfit(error):
                    self._resources.avoid(*unfit)
        return [actor for actor in self.actors if actor.loaded]

    def __enter__(self) -> RayExecutors:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self.actors:
            with suppress(Exception):  # it may be lost already
                self.ray.kill(actor.handle)


class RayExecutor:
    """The executor of one stream: an actor, and another one where that is lost or has unloaded it."""

    def __init__(self, all: RayExecutors) -> None:
        self._all = all
        self.actor: Actor | None = None  # where the stream is loaded

    def call(self, act: Callable[[Learners, *Ts], R], *args: *Ts) -> R:
        if self.actor is not None:
            return self._ask(self.actor, act, args)
        for _ in self._all.actors[1:]:  # a lost machine takes many actors along; nothing is loaded yet
            with suppress(LostError):
                return self._ask(self._all.take(self), act, args)
        return self._ask(self._all.take(self), act, args)

    def _ask(self, actor: Actor, act: Callable[..., R], args: tuple[Any, ...]) -> R:
        ray, self.actor = self._all.ray, actor
        sent = args[:-1] if act in WITH_FILES else args
        given = read_files(args[-1]) if act == Learners.load else {}
        try:
            answer, files = ray.get(actor.handle.call.remote(act, sent, given))
        except ray.exceptions.RayActorError as error:
            self._all.lose(actor)
            self.actor = None
            raise LostError("The machine that computed this was lost; try again.", retry_after=1) from error
        if act in LAST:
            self._all.leave(self)
        good, value = pickle.loads(answer)
        if not good:
            raise value
        if act == Learners.save:
            write_files(args[-1], files)
        result: R = value
        return result
