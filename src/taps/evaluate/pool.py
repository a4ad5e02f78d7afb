"""Runs of an evaluation in worker processes; a worker that dies fails its own run alone."""

from __future__ import annotations

import multiprocessing
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from taps.errors import TapsError
from taps.evaluate.jobs import Job, quiet_logs, run_job
from taps.evaluate.options import Execution
from taps.session.process import for_children, threads_each
from taps.session.score import RunningScore

TELL = 0.25  # seconds between two words about progress
NOT_BEGUN = "not begun: the time was up"
Watch = Callable[[str, int, Any], None]
"""Called with what happened, the index of the job, and a value.

"start" (None), "progress" (images done), "done" (the row), "stopped" (None) or "failed" (a sentence).
"""


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    how: Execution = Execution(),
    watch: Watch = lambda what, index, value: None,
) -> dict[int, str]:
    """Carry out many runs.

    Args:
        jobs: In the order in which they are begun.
        out: Folder of the evaluation.
        how: Processes, device, time; one job at a time runs in this process.
        watch: Told what happens.

    Returns:
        For each job that did not reach its end, by index: why.
    """
    deadline = how.deadline()
    if how.jobs <= 1 or len(jobs) <= 1:
        return _run_here(jobs, out, how.device, deadline, watch)
    pool = _Pool(out, how.device, deadline, min(how.jobs, len(jobs)))
    try:
        return pool.run(jobs, watch)
    except KeyboardInterrupt:
        pool.halt.set()  # every worker saves where it stands
        pool.join(30.0)
        raise
    finally:
        pool.end()


def _run_here(
    jobs: Sequence[Job], out: Path, device: str | None, deadline: float | None, watch: Watch
) -> dict[int, str]:
    unfinished: dict[int, str] = {}
    for index, job in enumerate(jobs):
        if late(deadline):
            unfinished[index] = NOT_BEGUN
            continue
        watch("start", index, None)
        tell = partial(watch, "progress", index)
        what, value = attempt(job, out, device, lambda: late(deadline), tell)
        note(unfinished, index, what, value)
        watch(what, index, value)
    return unfinished


def late(deadline: float | None) -> bool:
    return deadline is not None and time.time() >= deadline


def attempt(
    job: Job, out: Path, device: str | None, stop: Callable[[], bool], tell: Callable[[int], None]
) -> tuple[str, Any]:
    """Run one job; a refusal or a crash becomes a sentence."""
    told = 0.0

    def progress(running: RunningScore) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= TELL:
            told = now
            tell(running.position)

    try:
        row = run_job(job, out, device=device, stop=stop, progress=progress)
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except TapsError as error:
        return "failed", str(error)
    except Exception as error:
        trace = job.folder(out) / "crash.txt"
        trace.parent.mkdir(parents=True, exist_ok=True)
        trace.write_text(traceback.format_exc())
        return "failed", f"{type(error).__name__}: {error} (see {trace})"
    return ("stopped", None) if row is None else ("done", row)


def note(unfinished: dict[int, str], index: int, what: str, value: Any) -> None:
    """Keep why a job did not reach its end."""
    if what == "stopped":
        unfinished[index] = "stopped and saved: the time was up"
    elif what == "failed":
        unfinished[index] = str(value)


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    job: int | None = None


@dataclass
class _Pool:
    out: Path
    device: str | None
    deadline: float | None
    size: int
    workers: list[_Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = multiprocessing.get_context("spawn")
        self.halt = self.context.Event()

    def start(self) -> _Worker:
        mine, theirs = self.context.Pipe()
        start = (theirs, self.out, self.device, self.deadline, self.halt)
        process = self.context.Process(target=_serve, args=start, daemon=True)
        with for_children(threads_each(self.size)):
            process.start()
        theirs.close()
        worker = _Worker(process, mine)
        self.workers.append(worker)
        return worker

    def run(self, jobs: Sequence[Job], watch: Watch) -> dict[int, str]:
        waiting, unfinished = deque(range(len(jobs))), dict[int, str]()

        def give(worker: _Worker) -> None:
            if waiting and not late(self.deadline):
                worker.job = waiting.popleft()
                worker.pipe.send((worker.job, jobs[worker.job]))
                watch("start", worker.job, None)

        for _ in range(self.size):
            give(self.start())
        while any(worker.job is not None for worker in self.workers):
            busy = {worker.pipe: worker for worker in self.workers if worker.job is not None}
            for pipe in wait(list(busy), timeout=1.0):
                worker = busy[pipe]  # type: ignore[index]
                assert worker.job is not None
                try:
                    what, value = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    what, value = "failed", f"its process died (exit code {worker.process.exitcode})"
                if what == "progress":
                    watch(what, worker.job, value)
                    continue
                note(unfinished, worker.job, what, value)
                watch(what, worker.job, value)
                worker.job = None
                if worker.process.is_alive():
                    give(worker)
                else:
                    self.workers.remove(worker)
                    if waiting:
                        give(self.start())
        return unfinished | dict.fromkeys(waiting, NOT_BEGUN)

    def join(self, seconds: float) -> None:
        """Wait for workers to save and leave, reading what they still say."""
        end = time.monotonic() + seconds
        while any(worker.job is not None for worker in self.workers) and time.monotonic() < end:
            for worker in self.workers:
                try:
                    while worker.pipe.poll(0.05):
                        if worker.pipe.recv()[0] != "progress":
                            worker.job = None
                except (EOFError, OSError):
                    worker.job = None

    def end(self) -> None:
        for worker in self.workers:
            worker.pipe.close()
            worker.process.join(2.0)
            if worker.process.is_alive():
                worker.process.terminate()


def _serve(pipe: Connection, out: Path, device: str | None, deadline: float | None, halt: Event) -> None:
    """A worker: jobs in, words about them out, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    quiet_logs()
    try:
        while True:
            _, job = pipe.recv()
            pipe.send(
                attempt(
                    job,
                    out,
                    device,
                    lambda: halt.is_set() or late(deadline),
                    lambda done: pipe.send(("progress", done)),
                )
            )
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
