"""The learners of a service: in its own process, in other processes, or on other machines.

`Learners` holds them where they compute. An `Executor` carries calls to it. `RemoteLearner` is one of them as
the service sees it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from taps.aliases import current_settings
from taps.clip import Clip
from taps.default import BEFORE
from taps.images.decode import load_image
from taps.learner import Learner
from taps.methods.answers import normalise_answer
from taps.methods.known import Prepared, ViewedImage
from taps.methods.registry import find_method
from taps.serve.errors import LostError
from taps.serve.records import Stream
from taps.session.alike import nearest
from taps.session.log import apply
from taps.stages import Stage, keep_stages, stage
from taps.types import Answer, Prediction

STAND_IN = np.full((32, 32, 3), 128, np.uint8)
"""A grey image, predicted in the place of one that is lost or not yet there."""


def fresh(stream: Stream, clip: Clip) -> Learner:
    """A stream's learner as it began; settings it does not name have the defaults of version 0.2."""
    known, given = find_method(stream.method).known, current_settings(stream.settings)
    before = {name: value for name, value in BEFORE.items() if name in known}
    return Learner(clip, stream.classes, stream.method, seed=stream.seed, **before | given)


class Learners:
    """Learners by their streams' numbers, with one model. Arguments and results can be pickled."""

    def __init__(self, clip: Clip) -> None:
        self.clip = clip
        self._held: dict[int, Learner] = {}
        self._tried: tuple[Stream, Learner] | None = None

    def try_out(self, stream: Stream) -> None:
        """Make a learner and let it predict, to see that it can."""
        learner = fresh(stream, self.clip)
        learner.predict_one(STAND_IN, update=False)
        self._tried = stream, learner

    def begin(self, key: int, stream: Stream) -> tuple[tuple[str, ...], str]:
        """Hold a new learner, or the one of `try_out` if it is this stream's; its classes, its order."""
        tried, self._tried = self._tried, None
        same = tried is not None and tried[0] == replace(stream, id=tried[0].id, created=tried[0].created)
        return self._hold(key, tried[1] if tried and same else fresh(stream, self.clip))

    def load(self, key: int, folder: Path) -> tuple[tuple[str, ...], str]:
        """Hold a saved learner; its classes, its order."""
        self._held.pop(key, None)
        return self._hold(key, Learner.load(folder, self.clip))

    def save(self, key: int, folder: Path) -> None:
        """Write a learner for `load`."""
        self._of(key).save(folder)

    def _hold(self, key: int, learner: Learner) -> tuple[tuple[str, ...], str]:
        if self.clip.device.type == "cuda":  # captures its step before an image waits for it
            learner.predict_one(STAND_IN, update=False)
        self._held[key] = learner
        return learner.classes, learner.order

    def evict(self, key: int) -> None:
        self._held.pop(key, None)

    def predict_one(
        self, key: int, image: Any, name: str, update: bool, known: Prepared | None = None
    ) -> tuple[Prediction, tuple[int, ...], list[Stage]]:
        """Predict an image: decoded here, or as `known` if that was prepared for this very turn.

        Returns:
            The prediction; the open questions, where it asks; how long each stage took.
        """
        learner = self._of(key)
        with keep_stages() as stages:
            if known is not None and known.number == learner.seen:
                prediction = learner.predict_one(known, update=update)
            else:
                with stage("decode"):
                    pixels = load_image(image, name=name)
                prediction = learner.predict_one(pixels, update=update)
        return prediction, learner.pending if prediction.ask else (), stages

    def view_one(self, key: int, image: Any, name: str, number: int) -> ViewedImage:
        """Decode an image and make its views before its turn."""
        return self._of(key).view_one(load_image(image, name=name), number)

    def normalise_answer(self, key: int, answer: Answer) -> Answer:
        """An answer with classes by index."""
        learner = self._of(key)
        labels_only = None if learner.method.takes_any_answer else learner.method_name
        return normalise_answer(answer, learner.classes, labels_only=labels_only)

    def do(self, key: int, name: str, *args: Any) -> Any:
        """Call one of a learner's methods."""
        return getattr(self._of(key), name)(*args)

    def nearest(self, key: int, id: int, others: Sequence[int], most: int) -> list[int]:
        """The unanswered images that are most alike to one, the nearest first."""
        return nearest(self._of(key), id, others, most)

    def apply(self, key: int, kind: str, id: int | None, value: Any) -> tuple[str, ...]:
        """Give a learner an event; the names of its classes afterwards."""
        learner = self._of(key)
        apply(learner, kind, id, value)
        return learner.classes

    def _of(self, key: int) -> Learner:
        if key not in self._held:
            raise LostError("The learner of this stream is being restored; try again.", retry_after=1)
        return self._held[key]


class Executor(Protocol):
    """Where learners live."""

    def call(self, act: str, *args: Any) -> Any:
        """Call a method of the `Learners` there, and wait for what it returns or raises.

        Folders to load from and save to are the service's; an executor that does not see them copies files.

        Raises:
            LostError: The executor lost its learners. It takes calls again, without them.
        """
        ...


class Executors(Protocol):
    """Which stream has which executor."""

    def executor_of(self, stream: int) -> Executor: ...


class Threads:
    """Learners in this process, called by their workers' threads, by default as many at a time as cores."""

    def __init__(self, clip: Clip, computing: int | None = None) -> None:
        self.learners = Learners(clip)
        self._gate = threading.Semaphore(computing or os.cpu_count() or 1)

    def executor_of(self, stream: int) -> Executor:
        return self

    def call(self, act: str, *args: Any) -> Any:
        with self._gate:
            return getattr(self.learners, act)(*args)


class RemoteLearner:
    """A learner of some executor; methods that are not defined here are those of `Learner`, called there.

    Attributes:
        classes: Their names.
        order: "ask_first" or "predict_first".
        pending: Ids of the open questions when it asked the last one.
        stages: How long the parts of its last prediction took.
    """

    def __init__(self, executor: Executor, key: int, made: tuple[tuple[str, ...], str]) -> None:
        self.executor, self.key = executor, key
        self.classes, self.order = made
        self.pending: tuple[int, ...] = ()
        self.stages: list[Stage] = []

    @classmethod
    def begin(cls, executor: Executor, stream: Stream) -> RemoteLearner:
        return cls(executor, stream.id, executor.call("begin", stream.id, stream))

    @classmethod
    def load(cls, executor: Executor, stream: Stream, folder: Path) -> RemoteLearner:
        return cls(executor, stream.id, executor.call("load", stream.id, folder.absolute()))

    def evict(self) -> None:
        self.executor.call("evict", self.key)

    def predict_one(
        self, image: Any, name: str = "image", *, update: bool = True, known: Prepared | None = None
    ) -> Prediction:
        prediction: Prediction
        prediction, pending, self.stages = self.executor.call(
            "predict_one", self.key, image, name, update, known
        )
        if prediction.ask:
            self.pending = pending
        return prediction

    def normalise_answer(self, answer: Answer) -> Answer:
        """An answer with classes by name, as the learner understands it."""
        by_index: Answer = self.executor.call("normalise_answer", self.key, answer)
        return by_index.named(self.classes)

    def apply(self, kind: str, id: int | None, value: Any = None) -> None:
        """Give it an event, as `taps.session.log.apply` does."""
        self.classes = self.executor.call("apply", self.key, kind, id, value)

    def nearest(self, id: int, others: Sequence[int], most: int) -> list[int]:
        """The unanswered images among `others` that are most alike to one, the nearest first."""
        found: list[int] = self.executor.call("nearest", self.key, id, others, most)
        return found

    def save(self, folder: Path) -> None:
        self.executor.call("save", self.key, folder.absolute())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self.executor.call, "do", self.key, name)
