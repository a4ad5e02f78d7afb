"""Learners in processes of their own, one for each core: their steps do not share an interpreter.

A process that has threads must not fork, and the service has many. So one is forked before there are any: the
fork server. It has the model, keeps no threads, and forks those that compute, also in the place of one that
died; and a second fork server, which takes its place when it dies itself.
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
from contextlib import AbstractContextManager, nullcontext, suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from taps.clip import Clip
from taps.methods.registry import list_methods
from taps.serve.errors import LostError
from taps.serve.learners import Learners, Place

log = logging.getLogger("taps.serve")

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux' prctl
NICE = 5  # those that compute give way to the one that answers, which needs little and is waited for
GRACE = 0.5  # seconds a fork server without a service waits for those that compute, before they die with it
COMPUTE, SERVE = b"c", b"s"  # what a fork server is asked to fork
Reply = tuple[bool, Any]


class Processes:
    """So many processes with learners, and the streams spread over them. Make it before any thread starts.

    Args:
        clip: The model, on the CPU.
        count: How many.
    """

    def __init__(self, clip: Clip, count: int) -> None:
        list_methods()  # read now, they are in memory once
        self._server = ForkServer(clip)
        self.places = [Process(self._server) for _ in range(count)]

    def place_of(self, stream: int) -> Place:
        return self.places[stream % len(self.places)]

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        """End all of them; none is left when this returns."""
        for place in self.places:
            place.close()
        self._server.close()


class Process:
    """A place that is one process. Calls wait there in line, so that it is never idle between two."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._pipe: Connection | None = None
        self._waiting: deque[Future[Any]] = deque()

    def moving(self) -> AbstractContextManager[bool]:
        return nullcontext(False)

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

    There are two fork servers. Where one dies the other takes its place, and forks a new second one. Where
    both die a new interpreter is started and given the model, whose weights are in memory twice then.
    """

    def __init__(self, clip: Clip) -> None:
        self._clip, self._closed = clip, False
        self._lock = threading.RLock()
        self._watched: dict[socket.socket, threading.Thread] = {}  # the elder first
        parent, (ours, theirs) = os.getpid(), socket.socketpair()
        child = os.fork()
        if child == 0:
            ours.close()
            _settle(parent)
            _serve_forks(theirs, clip)
        theirs.close()
        self._children = [child]  # others are not the service's own, and are reaped by the kernel
        self._watch(ours)
        self._watch(self._ask(SERVE))

    def fork(self) -> Connection:
        """A new process that computes, and the way to it."""
        return Connection(self._ask(COMPUTE).detach())

    def close(self) -> None:
        """Wait until both and all they forked have ended."""
        with self._lock:
            self._closed, watched = True, dict(self._watched)
        for way in watched:
            with suppress(OSError):
                way.shutdown(socket.SHUT_WR)
        for watcher in watched.values():
            watcher.join()
        self._reap(0)

    def _ask(self, kind: bytes) -> socket.socket:
        """Have the elder fork server that lives fork a process; our end of the way to it."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            for way in list(self._watched):
                with suppress(OSError):
                    socket.send_fds(way, [kind], [theirs.fileno()])
                    return ours
            with suppress(OSError):
                socket.send_fds(self._begin_anew(), [kind], [theirs.fileno()])
                return ours
        ours.close()
        raise LostError("No process can be started now; try again.", retry_after=1)

    def _begin_anew(self) -> socket.socket:
        """A fork server in an interpreter of its own: a process with threads, as this one, must not fork."""
        ours, theirs = socket.socketpair()
        words = [sys.executable, "-c", f"from {__name__} import begin_anew; begin_anew()"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with theirs:
            stdin = (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)
            self._children.append(os.posix_spawn(words[0], words, environment, file_actions=[stdin]))
        try:
            with Connection(os.dup(ours.fileno())) as pipe:
                pipe.send_bytes(pickle.dumps(self._clip))
        except OSError:
            ours.close()
            raise
        self._watch(ours)
        return ours

    def _watch(self, way: socket.socket) -> None:
        thread = threading.Thread(target=self._replace, args=(way,), name="fork server", daemon=True)
        self._watched[way] = thread
        thread.start()

    def _replace(self, way: socket.socket) -> None:
        """Wait until a fork server has ended; unless it was to end, have another made."""
        with suppress(OSError):
            way.recv(1)
        with self._lock, suppress(LostError):
            del self._watched[way]
            way.close()
            if not self._closed:
                self._reap(os.WNOHANG)
                log.error("A process that starts those that compute ended; another takes its place.")
                self._watch(self._ask(SERVE))

    def _reap(self, how: int) -> None:
        for child in self._children:
            with suppress(ChildProcessError):
                os.waitpid(child, how)


def begin_anew() -> NoReturn:
    """A fork server that was not forked: the model comes to it first, then what it is to fork."""
    with Connection(os.dup(0)) as pipe:
        clip = pickle.loads(pipe.recv_bytes())
    list_methods()
    _ignore_signals()
    _serve_forks(socket.socket(fileno=0), clip)


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
    gc.collect()
    gc.freeze()  # so that collecting garbage touches, and thereby copies, none of the shared pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps those that end
    me = os.getpid()
    while (request := socket.recv_fds(requests, 1, 1))[0]:
        kind, (handle,) = request[:2]
        if os.fork() == 0:
            requests.close()
            if kind == SERVE:
                _serve_forks(socket.socket(fileno=handle), clip)
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
