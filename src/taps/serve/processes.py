"""Learners in processes of their own, one for each core: their steps do not share an interpreter.

Python's own fork server starts them, also in the place of one that died, and is itself started again where it
died. What it has imported, and the model's weights (`SharedClip`), are in memory once.
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

NICE = 5  # those that compute give way to the one that answers, which needs little and is waited for


class Processes:
    """So many processes with learners, and the streams spread over them.

    Args:
        clip: The model, on the CPU.
        count: How many.
    """

    def __init__(self, clip: Clip, count: int) -> None:
        with for_children(1):  # it imports while the service begins
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
    """An executor that is one process, started by the first call. Others wait until it has replied."""

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
                log.error("A process that computes ended; its streams are made anew from what is on record.")
                self._end()
                raise LostError("The process that computed this ended; try again.", retry_after=1) from error
        if good:
            return value
        raise value

    def close(self) -> None:
        """End it, in the middle of a call, too; no other takes its place."""
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
    """Do what comes, one after the other, until the service closes its end or is no more."""
    gc.freeze()  # a collection would touch, and so copy, what is in memory once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the service, which then ends this process
    os.nice(NICE)
    learners = Learners(clip.clip())
    with suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(reply(learners, *pipe.recv()))


def _end_with_parent() -> None:
    """In the middle of a step, too: what it would write would be in the next service's way."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


def reply(learners: Learners, act: str, args: tuple[Any, ...]) -> bytes:
    """Do what is requested: whether it went well, and the result or the error, pickled."""
    try:
        said: tuple[bool, Any] = (True, getattr(learners, act)(*args))
    except Exception as error:
        error.add_note(traceback.format_exc())
        said = (False, error)
    try:
        data = pickle.dumps(said)
        if not said[0]:
            pickle.loads(data)  # errors of some libraries cannot be made again from what they are sent as
    except Exception:
        return pickle.dumps((False, RuntimeError(repr(said[1]))))
    return data
