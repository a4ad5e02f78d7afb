"""Learners in processes of their own, one for each core: their steps do not share an interpreter.

A process that has threads must not fork, and the service has many. So one is forked before there are any: the
fork server. It has the model, keeps no threads, and forks those that compute, also in the place of one that
died. Where it dies itself, a new interpreter takes its place.
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
from taps.serve.learners import Executor, Learners

log = logging.getLogger("taps.serve")

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux' prctl
NICE = 5  # those that compute give way to the one that answers, which needs little and is waited for
GRACE = 0.5  # seconds a fork server without a service waits for those that compute, before they die with it
LOOK = 0.5  # seconds between two looks of an interpreter that begins whether its service is still there
Reply = tuple[bool, Any]

# What it imports takes seconds, in which it would not see that its service has ended. The kernel's signal of
# `_settle` would come too early: at the end of the thread that started it.
ANEW = f"""
import os, signal
signal.signal(signal.SIGALRM, lambda *_: os.getppid() == {{parent}} or os._exit(0))
signal.setitimer(signal.ITIMER_REAL, {LOOK}, {LOOK})
from {__name__} import begin_anew
begin_anew()
"""


class Processes:
    """So many processes with learners, and the streams spread over them. Make it before any thread starts.

    Args:
        clip: The model, on the CPU.
        count: How many.
    """

    def __init__(self, clip: Clip, count: int) -> None:
        list_methods()  # read now, they are in memory once
        self._server = ForkServer(clip)
        self.processes = [Process(self._server) for _ in range(count)]

    def executor_of(self, stream: int) -> Executor:
        return self.processes[stream % len(self.processes)]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        """End all of them; none is left when this returns."""
        for process in self.processes:
            process.close()
        self._server.close()


class Process:
    """An executor that is one process. Calls wait there in line, so that it is never idle between two."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server
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
        pipe, waiting = self._server.fork(), deque[Future[Any]]()
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


class ForkServer:
    """Forks processes whenever one is wanted. This object is the service's side of it.

    Where it died a new interpreter is started and given the model, whose weights are in memory twice then.
    """

    def __init__(self, clip: Clip) -> None:
        self._clip, self._lock = clip, threading.Lock()
        parent, (self._way, theirs) = os.getpid(), socket.socketpair()
        _freeze()
        self._child = os.fork()
        if self._child == 0:
            self._way.close()
            _settle(parent)
            _serve_forks(theirs, clip)
        theirs.close()

    def fork(self) -> Connection:
        """A new process that computes, and the way to it."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            with suppress(OSError):
                self._send(theirs)
                return Connection(ours.detach())
            log.error("The process that starts those that compute ended; another takes its place.")
            self._end()
            with suppress(OSError):
                self._begin_anew()
                self._send(theirs)
                return Connection(ours.detach())
        ours.close()
        raise LostError("No process can be started now; try again.", retry_after=1)

    def close(self) -> None:
        """Wait until it and all it forked have ended."""
        with self._lock:
            self._end()

    def _send(self, way: socket.socket) -> None:
        """The other end of a way to a process that is to be forked."""
        socket.send_fds(self._way, [b"."], [way.fileno()])

    def _end(self) -> None:
        """Let it end; those that it forked end before it, or with it."""
        self._way.close()
        with suppress(ChildProcessError):
            os.waitpid(self._child, 0)

    def _begin_anew(self) -> None:
        """Start one in an interpreter of its own: a process with threads, as this one, must not fork."""
        self._way, theirs = socket.socketpair()
        words = [sys.executable, "-c", ANEW.format(parent=os.getpid())]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with theirs:
            stdin = (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)
            self._child = os.posix_spawn(words[0], words, environment, file_actions=[stdin])
        with Connection(os.dup(self._way.fileno())) as pipe:
            pipe.send_bytes(pickle.dumps(self._clip))


def begin_anew() -> NoReturn:
    """A fork server that was not forked: the model comes to it first, then what it is to fork."""
    with Connection(os.dup(0)) as pipe:
        clip = pickle.loads(pipe.recv_bytes())
    list_methods()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _ignore_signals()
    _freeze()
    _serve_forks(socket.socket(fileno=0), clip)


def _freeze() -> None:
    """Leave what there is to no garbage collection: it would touch, and thereby copy, the shared pages.

    Before the fork: the last collection itself touches all of them.
    """
    gc.collect()
    gc.freeze()


def _ignore_signals() -> None:
    """They are for the service, which then ends this process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _settle(parent: int) -> None:
    """End with the process that forked this one, however it ends."""
    _ignore_signals()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _serve_forks(requests: socket.socket, clip: Clip) -> NoReturn:
    """Fork for each descriptor that is sent, until the service has closed its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps those that end
    me = os.getpid()
    while (request := socket.recv_fds(requests, 1, 1))[0]:
        (handle,) = request[1]
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _settle(me)
            os.nice(NICE)
            _work(Connection(handle), Learners(clip))
        os.close(handle)
    signal.setitimer(signal.ITIMER_REAL, GRACE)
    with suppress(ChildProcessError):
        os.wait()  # with SIGCHLD ignored it returns when all have ended
    os._exit(0)


def _work(pipe: Connection, learners: Learners) -> NoReturn:
    """Do what comes, one after the other, until told to end or the service is no more."""
    with suppress(EOFError, OSError):
        while (request := pipe.recv()) is not None:
            pipe.send_bytes(reply(learners, *request))
    os._exit(0)


def reply(learners: Learners, act: str, args: tuple[Any, ...]) -> bytes:
    """Do what is requested: whether it went well, and the result or the error, pickled."""
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
