"""Runs of an evaluation in worker processes; a worker that dies fails its own run alone."""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

from taps.disk import claim
from taps.errors import TapsError
from taps.files import write_text
from taps.process import for_children, threads_each
from taps.streams.record import is_run
from taps.streams.score import RunningScore
from taps.study.evaluate.jobs import Job, quiet_logs, run_job
from taps.study.evaluate.options import Execution

TELL = 0.25  # seconds between two events of progress
NOT_BEGUN = "not begun: the time was up"
Watch = Callable[[str, int, Any], None]
"""Called with an event, the index of the job, and a value.

"start" (None), "progress" (images done), "done" (the row), "stopped" (None) or "failed" (a sentence).
"""


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    how: Execution = Execution(),
    watch: Watch = lambda what, index, value: None,
) -> dict[int, str]:
    """Carry out many runs, begun in their order; returns why a job did not reach its end, by its index."""
    deadline = how.deadline()
    if how.jobs > 1 and len(jobs) > 1:
        return _Pool(jobs, out, how.device, deadline, min(how.jobs, len(jobs))).run(watch)
    unfinished: dict[int, str] = {}
    for index, job in enumerate(jobs):
        if late(deadline):
            unfinished[index] = NOT_BEGUN
            continue
        watch("start", index, None)
        tell = partial(watch, "progress", index)
        what, value = attempt(job, out, how.device, lambda: late(deadline), tell)
        note(unfinished, index, what, value)
        watch(what, index, value)
    return unfinished


def late(deadline: float | None) -> bool:
    return deadline is not None and time.time() >= deadline


def attempt(
    job: Job, out: Path, device: str | None, stop: Callable[[], bool], tell: Callable[[int], None]
) -> tuple[str, Any]:
    """Run one job; a refusal or a crash becomes a sentence."""
    last = 0.0

    def progress(running: RunningScore) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= TELL:
            last = now
            tell(running.position)

    try:
        row = run_job(job, out, device=device, stop=stop, progress=progress)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except TapsError as error:
        return "failed", str(error)
    except Exception as error:
        trace = job.folder(out) / "crash.txt"
        claim(trace.parent, is_run)
        write_text(trace, traceback.format_exc())
        return "failed", f"{type(error).__name__}: {error} (see {trace})"
    return ("stopped", None) if row is None else ("done", row)


def note(unfinished: dict[int, str], index: int, what: str, value: Any) -> None:
    """Add why a job did not reach its end, where the event says so."""
    if what == "stopped":
        unfinished[index] = "stopped and saved: the time was up"
    elif what == "failed":
        unfinished[index] = str(value)


class _Pool:
    """Worker processes, each fed with jobs by a thread of this process."""

    def __init__(
        self, jobs: Sequence[Job], out: Path, device: str | None, deadline: float | None, size: int
    ) -> None:
        self.waiting, self.size, self.deadline = deque(enumerate(jobs)), size, deadline
        self.context = multiprocessing.get_context("spawn")
        self.halt = self.context.Event()
        self.args = out, device, deadline, self.halt
        self.events = SimpleQueue[tuple[str, int, Any]]()
        self.lock = Lock()
        self.processes: list[SpawnProcess] = []

    def run(self, watch: Watch) -> dict[int, str]:
        unfinished: dict[int, str] = {}
        with ThreadPoolExecutor(self.size) as threads:
            feeders = [threads.submit(self.feed) for _ in range(self.size)]
            try:
                running = self.size
                while running:
                    what, index, value = self.events.get()
                    if what == "end":
                        running -= 1
                        continue
                    note(unfinished, index, what, value)
                    watch(what, index, value)
            except BaseException:
                self.halt.set()  # every worker saves where it stands
                wait(feeders, timeout=30.0)
                raise
            finally:
                for process in self.processes:
                    process.terminate()
        for feeder in feeders:
            feeder.result()
        return unfinished | {index: NOT_BEGUN for index, _ in self.waiting}

    def feed(self) -> None:
        """Give a process one job after the other, and pass on its events; one that dies is replaced."""
        try:
            process, pipe = self.start()
            while given := self.next_job():
                index, job = given
                if not process.is_alive():
                    process, pipe = self.start()
                self.events.put(("start", index, None))
                what = "progress"
                try:
                    pipe.send(job)
                    while what == "progress":
                        what, value = pipe.recv()
                        self.events.put((what, index, value))
                except (EOFError, OSError):
                    process.join()
                    why = f"its process died (exit code {process.exitcode})"
                    self.events.put(("failed", index, why))
            pipe.close()  # the process ends
            process.join(2.0)
        finally:
            self.events.put(("end", 0, None))

    def next_job(self) -> tuple[int, Job] | None:
        """None where all are given out, or where it is time to stop."""
        with self.lock:
            stop = self.halt.is_set() or late(self.deadline)
            return self.waiting.popleft() if self.waiting and not stop else None

    def start(self) -> tuple[SpawnProcess, Connection]:
        mine, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, *self.args), daemon=True)
        with self.lock, for_children(threads_each(self.size)):  # it changes what all threads share
            process.start()
        theirs.close()
        self.processes.append(process)
        return process, mine


def _serve(pipe: Connection, out: Path, device: str | None, deadline: float | None, halt: Event) -> None:
    """A worker process: receives jobs and sends events, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    quiet_logs()

    def stop() -> bool:
        return halt.is_set() or late(deadline)

    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            job = pipe.recv()
            pipe.send(attempt(job, out, device, stop, lambda done: pipe.send(("progress", done))))
