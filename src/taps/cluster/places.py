"""Learners of a service as actors of a Ray cluster: another place for them, behind the same HTTP front.

A stream stays with its actor. Where the actor, or the machine it is on, is lost, the stream goes to another
one, and the service makes it anew there from what is on record.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from taps.clip import load_clip
from taps.cluster.runs import places
from taps.errors import SettingsError
from taps.evaluate.jobs import ModelSpec
from taps.evaluate.options import Execution
from taps.serve.errors import LostError
from taps.serve.learners import Learners, Place
from taps.serve.processes import reply

log = logging.getLogger("taps.serve")
START = 60.0  # seconds for the first actors to load the model; later streams go to those that have
LAST = ("let_go", "try_out")  # calls after which a stream has nothing at its place


class Computing:
    """An actor: learners on some machine of the cluster.

    Args:
        model: Loaded there.
        device: cpu or cuda; a GPU is used if the actor has one.
        here: The service's folder, for models given by relative paths.
    """

    def __init__(self, model: ModelSpec, device: str | None, here: Path) -> None:
        if here.is_dir():
            os.chdir(here)
        self.learners = Learners(load_clip(model.name, pretrained=model.pretrained, device=device))

    def call(self, act: str, args: tuple[Any, ...]) -> bytes:
        return reply(self.learners, act, args)


@dataclass(eq=False)
class Actor:
    """One that computes: its handle, what tells that it has loaded the model, and how many streams it has."""

    handle: Any
    ready: Any
    streams: int = 0


class RayPlaces:
    """Actors wherever the cluster has room, and the streams spread over them.

    Machines that join get actors; streams that begin, or come back after a rest, go to those with the fewest.
    Streams of an actor that is lost go to the others at once.

    Args:
        ray: Connected; see `taps.cluster.connect`.
        model: What every actor loads; every machine must see it, and the store's files, at the same paths.
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
        kind = ray.remote(Computing).options(num_cpus=cpus, num_gpus=gpus)
        self.ray, self._count = ray, count
        self._share = Execution(cpus_per_run=cpus, gpus_per_run=gpus)
        self._make = partial(kind.remote, model, device, Path.cwd())
        self._lock = threading.Lock()
        self.actors: list[Actor] = []
        self._grow()
        for actor in self._ready(START):
            self._check(actor)

    def _check(self, actor: Actor) -> None:
        try:
            self.ray.get(actor.ready)
        except self.ray.exceptions.RayError as error:
            reason = str(getattr(error, "cause", None) or error).strip().split("\n")[-1]
            raise SettingsError(f"A machine of the Ray cluster cannot load the model ({reason}).") from error

    def place_of(self, stream: int) -> Place:
        return RayPlace(self)

    @property
    def trouble(self) -> str | None:
        room = places(self.ray.nodes(), self._share)
        return None if room else "No machine of the Ray cluster has room for a process that computes."

    def take(self) -> Actor:
        """An actor for one more stream: of those that have loaded the model the one with the fewest."""
        with self._lock:
            self._grow()
            actor = min(self._ready(0) or self.actors, key=lambda actor: actor.streams)
            actor.streams += 1
            return actor

    def lose(self, actor: Actor) -> None:
        with self._lock:
            if actor in self.actors:  # the first one to notice
                log.error("An actor that computes was lost; its streams are made anew from the record.")
                self.actors.remove(actor)

    def _grow(self) -> None:
        room = max(1, places(self.ray.nodes(), self._share))
        for _ in range(min(self._count or room, room) - len(self.actors)):
            handle = self._make()
            self.actors.append(Actor(handle, handle.__ray_ready__.remote()))

    def _ready(self, patience: float) -> list[Actor]:
        waited = {actor.ready: actor for actor in self.actors}
        done, _ = self.ray.wait(list(waited), num_returns=len(waited), timeout=patience)
        return [waited[each] for each in done]

    def __enter__(self) -> RayPlaces:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self.actors:
            with suppress(Exception):  # it may be lost already
                self.ray.kill(actor.handle)


class RayPlace:
    """The place of one stream: an actor, another one where that is lost or the stream has rested."""

    def __init__(self, all: RayPlaces) -> None:
        self._all = all
        self._actor: Actor | None = None

    def call(self, act: str, *args: Any) -> Any:
        if self._actor is not None:
            return self._ask(self._actor, act, args)
        for _ in self._all.actors[1:]:  # a machine has many, and nothing of this stream is there yet
            with suppress(LostError):
                return self._ask(self._all.take(), act, args)
        return self._ask(self._all.take(), act, args)

    def _ask(self, actor: Actor, act: str, args: tuple[Any, ...]) -> Any:
        ray, self._actor = self._all.ray, actor
        try:
            good, value = pickle.loads(ray.get(actor.handle.call.remote(act, args)))
        except ray.exceptions.RayActorError as error:
            self._all.lose(actor)
            self._actor = None
            raise LostError("The machine that computed this was lost; try again.", retry_after=1) from error
        if act in LAST:
            actor.streams -= 1
            self._actor = None
        if good:
            return value
        raise value
