"""Learners in processes of their own, one for each core: their steps do not share an interpreter.

A process that has threads must not fork, and the service has many. So one is forked before there are any: the
nursery. It has the model, keeps no threads, and forks those that compute, also in the place of one that died.
The model's weights are in memory once: whoever is forked sees the same pages.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from taps.clip import Clip
from taps.methods.registry import list_methods
from taps.serve.errors import LostError
from taps.serve.learners import Learners, Place

log = logging.getLogger("taps.serve")

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux' prctl
NICE = 5  # those that compute give way to the one that answers, which needs little and is waited for
Reply = tuple[bool, Any]


class Processes:
    """So many processes with learners, and the streams spread over them. Make it before any thread starts.

    Args:
        clip: The model, on the CPU.
        count: How many.
    """

    def __init__(self, clip: Clip, count: int) -> None:
        list_methods()  # read now, they are in memory once
        self._nursery = Nursery(clip)
        self.places = [Process(self._nursery) for _ in range(count)]

    def place_of(self, stream: int) -> Place:
        return self.places[stream % len(self.places)]

    @property
    def trouble(self) -> str | None:
        return self._nursery.trouble

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        """End all of them; none is left when this returns."""
        for place in self.places:
            place.close()
        self._nursery.close()


class Process:
    """A place that is one process. Calls wait there in line, so that it is never idle between two."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._lock = threading.Lock()
        self._pipe: Connection | None = None
        self._waiting: deque[Future[Any]] = deque()

    def call(self, act: str, *args: Any) -> Any:
        data, future = pickle.dumps((act, args)), Future[Any]()
        with self._lock:
            if self._pipe is None:
                self._start()
            assert self._pipe is not None
            self._waiting.append(future)
            with suppress(OSError):  # it has ended: the reader tells all who wait
                self._pipe.send_bytes(data)
        return future.result()

    def close(self) -> None:
        with self._lock, suppress(OSError):
            if self._pipe is not None:
                self._pipe.send_bytes(pickle.dumps(None))

    def _start(self) -> None:
        pipe, waiting = self._nursery.fork(), deque[Future[Any]]()
        threading.Thread(target=self._read, args=(pipe, waiting), name="replies", daemon=True).start()
        self._pipe, self._waiting = pipe, waiting

    def _read(self, pipe: Connection, waiting: deque[Future[Any]]) -> None:
        """Hand replies to those who wait, in the order of their calls, until the process has ended."""
        with suppress(EOFError, OSError):
            while True:
                good, value = pipe.recv()
                future = waiting.popleft()
                if good:
                    future.set_result(value)
                else:
                    future.set_exception(value)
        with self._lock:
            self._pipe = None
        pipe.close()
        for future in waiting:
            future.set_exception(LostError("The process that computed this ended; try again.", retry_after=1))
        if waiting:
            log.error("A process that computes ended; its streams are made anew from what is on record.")


class Nursery:
    """Forks processes whenever one is wanted. This object is the service's side of it."""

    def __init__(self, clip: Clip) -> None:
        self.trouble: str | None = None
        self._socket, theirs = socket.socketpair()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._socket.close()
            _settle(parent)
            _nurse(theirs, clip)
        theirs.close()

    def fork(self) -> Connection:
        """A new process, and the way to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._socket, [b"."], [theirs.fileno()])
            except OSError as error:
                ours.close()
                self.trouble = f"No process can be started ({error}); the service must be started anew."
                raise LostError(self.trouble) from error
        return Connection(ours.detach())

    def close(self) -> None:
        """Wait until it and all it forked have ended."""
        self._socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _settle(parent: int) -> None:
    """Signals are for the service, which then ends this process; where it is killed, the kernel does."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _nurse(wishes: socket.socket, clip: Clip) -> NoReturn:
    """Fork for each descriptor that is sent, until the service has closed its end."""
    gc.collect()
    gc.freeze()  # so that collecting garbage touches, and thereby copies, none of the shared pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the dead
    me = os.getpid()
    while (wish := socket.recv_fds(wishes, 1, 1))[0]:
        (handle,) = wish[1]
        if os.fork() == 0:
            wishes.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _settle(me)
            os.nice(NICE)
            _work(Connection(handle), Learners(clip))
        os.close(handle)
    with suppress(ChildProcessError):
        os.wait()  # where nobody is told of the dead it returns when all are
    os._exit(0)


def _work(pipe: Connection, learners: Learners) -> NoReturn:
    """Do what comes, one after the other, until told to end or the service is no more."""
    with suppress(EOFError, OSError):
        while (wish := pipe.recv()) is not None:
            pipe.send_bytes(reply(learners, *wish))
    os._exit(0)


def reply(learners: Learners, act: str, args: tuple[Any, ...]) -> bytes:
    """Do what is wished for: whether it went well, and the result or the error, pickled."""
    try:
        reply: Reply = (True, getattr(learners, act)(*args))
    except Exception as error:
        error.add_note(traceback.format_exc())
        reply = (False, error)
    try:
        data = pickle.dumps(reply)
        if not reply[0]:
            pickle.loads(data)  # errors of some libraries cannot be made again from what they are sent as
    except Exception:
        return pickle.dumps((False, RuntimeError(repr(reply[1]))))
    return data
