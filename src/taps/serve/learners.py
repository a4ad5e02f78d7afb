"""Learners, wherever they live: in the service's own process, in one of their own, on another machine.

`Learners` holds them and lets them compute. A `Place` carries calls to it. `Held` is one of its learners seen
from the service.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from taps.clip import Clip
from taps.images.decode import load_image
from taps.learner import Learner
from taps.serve.errors import LostError
from taps.serve.records import Stream
from taps.types import Answer, Prediction

STAND_IN = np.full((32, 32, 3), 128, np.uint8)
"""Is predicted where an image is wanted and there is none, so that ids stay right."""


def fresh(stream: Stream, clip: Clip) -> Learner:
    """A stream's learner as it began."""
    return Learner(clip, stream.classes, stream.method, seed=stream.seed, **stream.settings)


class Learners:
    """Learners by their streams' numbers. Arguments and results are plain values, arrays and paths.

    Args:
        clip: The model they share.
    """

    def __init__(self, clip: Clip) -> None:
        self.clip = clip
        self._held: dict[int, Learner] = {}

    def try_out(self, stream: Stream) -> None:
        """Make a learner and let it predict, to see that it can; nothing of it stays."""
        fresh(stream, self.clip).predict_one(STAND_IN)

    def begin(self, key: int, stream: Stream) -> tuple[tuple[str, ...], str]:
        """Hold a new learner; its classes, and its order."""
        return self._hold(key, fresh(stream, self.clip))

    def load(self, key: int, folder: Path) -> tuple[tuple[str, ...], str]:
        """Hold a learner that was saved; its classes, and its order."""
        self._held.pop(key, None)
        return self._hold(key, Learner.load(folder, self.clip))

    def save(self, key: int, folder: Path) -> None:
        """Write a learner for `load`."""
        self._of(key).save(folder)

    def _hold(self, key: int, learner: Learner) -> tuple[tuple[str, ...], str]:
        if self.clip.device.type == "cuda":  # its step is captured before an image waits for it
            learner.peek(STAND_IN)
        self._held[key] = learner
        return learner.classes, learner.order

    def let_go(self, key: int) -> None:
        self._held.pop(key, None)

    def predict_one(self, key: int, image: Any, name: str) -> tuple[Prediction, tuple[int, ...]]:
        """Decode an image and predict it; where it asks, also the questions it can be given answers to."""
        learner = self._of(key)
        said = learner.predict_one(load_image(image, name=name))
        return said, learner.pending if said.ask else ()

    def peek(self, key: int, image: Any, name: str) -> Prediction:
        """Decode an image and say what it would be predicted as."""
        return self._of(key).peek(load_image(image, name=name))

    def do(self, key: int, name: str, *args: Any) -> Any:
        """Call one of a learner's methods."""
        return getattr(self._of(key), name)(*args)

    def add_class(self, key: int, names: Sequence[str]) -> tuple[str, ...]:
        """Make room for classes; the names of all."""
        learner = self._of(key)
        learner.add_class(names)
        return learner.classes

    def _of(self, key: int) -> Learner:
        if key not in self._held:
            raise LostError("The learner of this stream is being made anew; try again.", retry_after=1)
        return self._held[key]


class Place(Protocol):
    """Where learners live. One method, so that anything that can carry a call and its result can be one."""

    def call(self, act: str, *args: Any) -> Any:
        """Have a method of the `Learners` there called, and wait for what it returns or raises.

        Folders to load from and save to are the service's own; a place that does not see them carries files.

        Raises:
            LostError: The place lost its learners. It has begun anew without them, and takes calls again.
        """
        ...

    def moving(self) -> AbstractContextManager[bool]:
        """Whether a learner is to be saved, let go and made anew, for there is more room; held meanwhile."""
        ...


class Places(Protocol):
    """Which streams live where."""

    def place_of(self, stream: int) -> Place: ...


class Threads:
    """Learners in this process: each is called by its owner's thread, so many at a time as there are cores.

    Args:
        clip: The model they share.
        computing: How many at a time; the number of cores unless given.
    """

    def __init__(self, clip: Clip, computing: int | None = None) -> None:
        self.learners = Learners(clip)
        self._gate = threading.Semaphore(computing or os.cpu_count() or 1)

    def place_of(self, stream: int) -> Place:
        return self

    def moving(self) -> AbstractContextManager[bool]:
        return nullcontext(False)

    def call(self, act: str, *args: Any) -> Any:
        with self._gate:
            return getattr(self.learners, act)(*args)


class Held:
    """A learner of some place: what `Learner` does, done there. Used by the thread that owns it alone.

    Attributes:
        classes: Their names.
        order: "ask_first" or "predict_first".
        pending: Ids of the questions it can be given an answer to, as they were when it put the last one.
    """

    def __init__(self, place: Place, key: int, made: tuple[tuple[str, ...], str]) -> None:
        self.place, self.key = place, key
        self.classes, self.order = made
        self.pending: tuple[int, ...] = ()

    @classmethod
    def begin(cls, place: Place, stream: Stream) -> Held:
        """The learner of a stream as it began."""
        return cls(place, stream.id, place.call("begin", stream.id, stream))

    @classmethod
    def load(cls, place: Place, stream: Stream, folder: Path) -> Held:
        """The learner of a stream as it was saved."""
        return cls(place, stream.id, place.call("load", stream.id, folder.absolute()))

    def let_go(self) -> None:
        self.place.call("let_go", self.key)

    def predict_one(self, image: Any, name: str = "image") -> Prediction:
        said, pending = self.place.call("predict_one", self.key, image, name)
        if said.ask:
            self.pending = pending
        return said  # type: ignore[no-any-return]

    def peek(self, image: Any, name: str = "image") -> Prediction:
        said: Prediction = self.place.call("peek", self.key, image, name)
        return said

    def predict_again(self, id: int, image: bytes) -> Prediction:
        said: Prediction = self._do("predict_again", id, image)
        return said

    def resolved(self, answer: Answer) -> Answer:
        """An answer with classes by name, as the learner understands it."""
        said: Answer = self._do("resolved", answer)
        label = None if said.label is None else self.classes[int(said.label)]
        return replace(said, label=label, no=tuple(self.classes[int(index)] for index in said.no))

    def learn_one(self, id: int, answer: Answer) -> None:
        self._do("learn_one", id, answer)

    def skip(self, id: int) -> None:
        self._do("skip", id)

    def undo(self, id: int) -> None:
        self._do("undo", id)

    def add_class(self, names: Sequence[str]) -> None:
        self.classes = self.place.call("add_class", self.key, names)

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = self._do("summary")
        return found

    def state_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = self._do("state_dict")
        return found

    def save(self, folder: Path) -> None:
        self.place.call("save", self.key, folder.absolute())

    def _do(self, name: str, *args: Any) -> Any:
        return self.place.call("do", self.key, name, *args)
