"""Executors that are processes, one for each core: learners do not share an interpreter.

Python's fork server starts them, and replaces one that died. What it has imported, and the model's weights
(`SharedClip`), are in memory once.
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
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from taps.clip import Clip
from taps.clip.load import SharedClip
from taps.serve.errors import LostError
from taps.serve.learners import Executor, Learners
from taps.session.process import for_children

log = logging.getLogger("taps.serve")

NICE = 5  # computing processes give way to the one that answers requests, which needs little


class Processes:
    """`count` processes with learners of a model on the CPU, and the streams spread over them."""

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

    def call(self, act: str, *args: Any) -> Any:
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
        if good:
            return value
        raise value

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


def reply(learners: Learners, act: str, args: tuple[Any, ...]) -> bytes:
    """Carry out a call: whether it succeeded, and the result or the error, pickled."""
    try:
        result: tuple[bool, Any] = (True, getattr(learners, act)(*args))
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
