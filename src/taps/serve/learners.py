"""The learners of a service: in its own process, in other processes, or on other machines.

`Learners` holds them where they compute. An `Executor` carries calls to it. `RemoteLearner` is one of them as
the service sees it.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol, TypeVar, TypeVarTuple

import numpy as np

from taps.learner import Learner
from taps.learner.alike import nearest
from taps.learner.answers import normalise_answer
from taps.learner.prepared import Prepared, ViewedImage
from taps.model.clip import Clip
from taps.model.clip.load import SharedClip
from taps.model.images.decode import load_image
from taps.process import for_children
from taps.serve.errors import LostError
from taps.serve.records import Stream
from taps.types import Answer, FloatArray, Prediction

log = logging.getLogger("taps.serve")

NICE = 5  # computing processes give way to the one that answers requests, which needs little
STAND_IN = np.full((32, 32, 3), 128, np.uint8)
"""A grey image, predicted in the place of one that is lost or not yet there."""


def fresh(stream: Stream, clip: Clip) -> Learner:
    """A stream's learner as it began."""
    return Learner(clip, stream.classes, stream.method, seed=stream.seed, **stream.settings)


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
    ) -> tuple[Prediction, tuple[int, ...]]:
        """Predict an image: decoded here, or as `known` if that was prepared for this very turn.

        Returns:
            The prediction; the open questions, where it asks.
        """
        learner = self._of(key)
        ready = known is not None and known.number == learner.seen
        prediction = learner.predict_one(known if ready else load_image(image, name=name), update=update)
        return prediction, learner.pending if prediction.ask else ()

    def view_one(self, key: int, image: Any, name: str, number: int) -> ViewedImage:
        """Decode an image and make its views before its turn."""
        return self._of(key).view_one(load_image(image, name=name), number)

    def normalise_answer(self, key: int, answer: Answer) -> Answer:
        """An answer with classes by index."""
        learner = self._of(key)
        labels_only = None if learner.method.takes_any_answer else learner.method_name
        return normalise_answer(answer, learner.classes, labels_only=labels_only)

    def encode_one(self, key: int, image: ViewedImage) -> Prepared:
        """Encode an image of `view_one` before its turn."""
        return self._of(key).encode_one(image)

    def repredict(self, key: int, id: int, image: Any) -> Prediction:
        return self._of(key).repredict(id, image)

    def repredict_kept(self, key: int, ids: Sequence[int]) -> dict[int, FloatArray]:
        return self._of(key).repredict_kept(ids)

    def wanted_kept(self, key: int, ids: Sequence[int]) -> dict[int, float]:
        return self._of(key).wanted_kept(ids)

    def learn_one(self, key: int, id: int, answer: Answer) -> None:
        self._of(key).learn_one(id, answer)

    def ask(self, key: int, id: int, drawn: bool) -> None:
        self._of(key).ask(id, drawn)

    def skip(self, key: int, id: int) -> None:
        self._of(key).skip(id)

    def undo(self, key: int, id: int) -> str | None:
        return self._of(key).undo(id)

    def add_class(self, key: int, names: Sequence[str]) -> tuple[str, ...]:
        """Add classes; the names of all."""
        self._of(key).add_class(names)
        return self._of(key).classes

    def summary(self, key: int) -> dict[str, Any]:
        return self._of(key).summary()

    def state_dict(self, key: int) -> dict[str, Any]:
        return self._of(key).state_dict()

    def nearest(self, key: int, id: int, others: Sequence[int], most: int) -> list[int]:
        """The unanswered images that are most alike to one, the nearest first."""
        return nearest(self._of(key), id, others, most)

    def _of(self, key: int) -> Learner:
        if key not in self._held:
            raise LostError("The learner of this stream is being restored; try again.", retry_after=1)
        return self._held[key]


Ts = TypeVarTuple("Ts")
R = TypeVar("R")


def reply(learners: Learners, act: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Carry out a call: whether it succeeded, and the result or the error, pickled."""
    try:
        result: tuple[bool, Any] = (True, act(learners, *args))
    except Exception as error:
        error.add_note(traceback.format_exc())
        result = (False, error)
    try:
        data = pickle.dumps(result)
        if not result[0]:
            pickle.loads(data)  # errors of some libraries can be pickled, but not unpickled
    except Exception:
        return pickle.dumps((False, RuntimeError(repr(result[1]))))
    return data


class Executor(Protocol):
    """Where learners live."""

    def call(self, act: Callable[[Learners, *Ts], R], *args: *Ts) -> R:
        """Call a method of the `Learners` there, such as `Learners.save`, and wait for what it says.

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

    def call(self, act: Callable[[Learners, *Ts], R], *args: *Ts) -> R:
        with self._gate:
            return act(self.learners, *args)


class Processes:
    """`count` processes with learners of a model on the CPU, and the streams spread over them.

    Python's fork server starts them, and replaces one that died. What it has imported, and the model's
    weights, are in memory once.
    """

    def __init__(self, clip: Clip, count: int) -> None:
        with for_children(1):  # the fork server imports while the service starts
            forkserver.set_forkserver_preload([__name__])
            forkserver.ensure_running()
        shared = SharedClip(clip)
        self.processes = [Process(shared) for _ in range(count)]

    def executor_of(self, stream: int) -> Executor:
        return self.processes[stream % len(self.processes)]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        """End all of them; none is left when this returns."""
        for process in self.processes:
            process.close()


class Process:
    """One process, started by the first call. It takes one call at a time."""

    def __init__(self, clip: SharedClip) -> None:
        self._clip, self._turn, self._life = clip, threading.Lock(), threading.Lock()
        self._pipe: Connection | None = None
        self._process: BaseProcess | None = None
        self._closed = False

    def call(self, act: Callable[[Learners, *Ts], R], *args: *Ts) -> R:
        data = pickle.dumps((act, args))
        with self._turn:
            try:
                pipe = self._pipe or self._start()
                pipe.send_bytes(data)
                good, value = pipe.recv()
            except (EOFError, OSError) as error:
                log.error("A computing process ended; its streams are restored from the store.")
                self._end()
                raise LostError("The process that computed this ended; try again.", retry_after=1) from error
        if not good:
            raise value
        result: R = value
        return result

    def close(self) -> None:
        """End the process, even in the middle of a call; it is not started again."""
        self._closed = True
        self._end()

    def _start(self) -> Connection:
        context = multiprocessing.get_context("forkserver")
        with self._life:
            if self._closed:
                raise OSError("The service ends.")
            self._pipe, theirs = context.Pipe()
            with theirs, for_children(1):
                self._process = context.Process(target=work, args=(theirs, self._clip), daemon=True)
                self._process.start()
            return self._pipe

    def _end(self) -> None:
        with self._life:
            if self._process is not None and self._process.pid is not None:
                self._process.kill()
                self._process.join()
            self._pipe = self._process = None


def work(pipe: Connection, clip: SharedClip) -> None:
    """Answer calls one after the other, until the service closes its end of the pipe or ends."""
    gc.freeze()  # a collection would touch, and so copy, shared memory
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the service, which then ends this process
    os.nice(NICE)
    learners = Learners(clip.clip())
    with suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(reply(learners, *pipe.recv()))


def _end_with_parent() -> None:
    """End even in the middle of a step: what it would write would be in the next service's way."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


class RemoteLearner:
    """A learner of some executor: it `Learns`.

    Attributes:
        classes: Their names.
        order: "ask_first" or "predict_first".
        pending: Ids of the open questions when it asked the last one.
    """

    def __init__(self, executor: Executor, key: int, made: tuple[tuple[str, ...], str]) -> None:
        self.executor, self.key = executor, key
        self.classes, self.order = made
        self.pending: tuple[int, ...] = ()

    @classmethod
    def begin(cls, executor: Executor, stream: Stream) -> RemoteLearner:
        return cls(executor, stream.id, executor.call(Learners.begin, stream.id, stream))

    @classmethod
    def load(cls, executor: Executor, stream: Stream, folder: Path) -> RemoteLearner:
        return cls(executor, stream.id, executor.call(Learners.load, stream.id, folder.absolute()))

    def evict(self) -> None:
        self.executor.call(Learners.evict, self.key)

    def predict_one(
        self, image: Any, name: str = "image", *, update: bool = True, known: Prepared | None = None
    ) -> Prediction:
        act = Learners.predict_one
        prediction, pending = self.executor.call(act, self.key, image, name, update, known)
        if prediction.ask:
            self.pending = pending
        return prediction

    def normalise_answer(self, answer: Answer) -> Answer:
        """An answer with classes by name, as the learner understands it."""
        return self.executor.call(Learners.normalise_answer, self.key, answer).named(self.classes)

    def learn_one(self, id: int, label: Answer) -> None:
        self.executor.call(Learners.learn_one, self.key, id, label)

    def ask(self, id: int, drawn: bool = False) -> None:
        self.executor.call(Learners.ask, self.key, id, drawn)

    def skip(self, id: int) -> None:
        self.executor.call(Learners.skip, self.key, id)

    def undo(self, id: int) -> str | None:
        return self.executor.call(Learners.undo, self.key, id)

    def add_class(self, names: Sequence[str]) -> None:
        self.classes = self.executor.call(Learners.add_class, self.key, names)

    def repredict(self, id: int, image: Any) -> Prediction:
        return self.executor.call(Learners.repredict, self.key, id, image)

    def repredict_kept(self, ids: Sequence[int]) -> dict[int, FloatArray]:
        return self.executor.call(Learners.repredict_kept, self.key, ids)

    def wanted_kept(self, ids: Sequence[int]) -> dict[int, float]:
        return self.executor.call(Learners.wanted_kept, self.key, ids)

    def summary(self) -> dict[str, Any]:
        return self.executor.call(Learners.summary, self.key)

    def state_dict(self) -> dict[str, Any]:
        return self.executor.call(Learners.state_dict, self.key)

    def nearest(self, id: int, others: Sequence[int], most: int) -> list[int]:
        """The unanswered images among `others` that are most alike to one, the nearest first."""
        return self.executor.call(Learners.nearest, self.key, id, others, most)

    def save(self, folder: Path, /) -> None:
        self.executor.call(Learners.save, self.key, folder.absolute())
