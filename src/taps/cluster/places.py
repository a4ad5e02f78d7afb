"""Learners of a service as actors of a Ray cluster: another place for them, behind the same HTTP front.

A stream stays with its actor. Where the actor, or the machine it is on, is lost, another one takes its place
wherever the cluster has room, and the service makes its streams anew there from what is on record.
"""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from taps.clip import load_clip
from taps.evaluate.jobs import ModelSpec
from taps.serve.errors import LostError
from taps.serve.learners import Learners, Place
from taps.serve.processes import reply

log = logging.getLogger("taps.serve")


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


class RayPlaces:
    """So many actors, and the streams spread over them.

    Args:
        ray: Connected; see `taps.cluster.connect`.
        model: What every actor loads; every machine must see it, and the store's files, at the same paths.
        count: How many actors; one for each core of the cluster unless given.
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
        actor = ray.remote(Computing).options(num_cpus=cpus, num_gpus=gpus)
        wanted = count or max(1, int(ray.cluster_resources().get("CPU", 1) / cpus))
        here = Path.cwd()
        self.places = [RayPlace(ray, lambda: actor.remote(model, device, here)) for _ in range(wanted)]

    def place_of(self, stream: int) -> Place:
        return self.places[stream % len(self.places)]

    def __enter__(self) -> RayPlaces:
        return self

    def __exit__(self, *_: object) -> None:
        for place in self.places:
            place.close()


class RayPlace:
    """A place that is one actor at a time."""

    def __init__(self, ray: Any, make: Callable[[], Any]) -> None:
        self._ray, self._make = ray, make
        self._lock = threading.Lock()
        self._actor = make()

    def call(self, act: str, *args: Any) -> Any:
        actor = self._actor
        try:
            good, value = pickle.loads(self._ray.get(actor.call.remote(act, args)))
        except self._ray.exceptions.RayActorError as error:
            self._replace(actor)
            raise LostError("The machine that computed this was lost; try again.", retry_after=1) from error
        if good:
            return value
        raise value

    def close(self) -> None:
        with suppress(Exception):  # it may be lost already
            self._ray.kill(self._actor)

    def _replace(self, lost: Any) -> None:
        with self._lock:
            if self._actor is lost:  # the first one to notice
                log.error("An actor that computes was lost; its streams are made anew from the record.")
                self._actor = self._make()
