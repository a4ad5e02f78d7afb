"""The runs of an evaluation on a Ray cluster: what `taps.evaluate.pool` does on one machine."""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.cluster.connect import connected
from taps.cluster.machines import NODE, Origin, Resources, origin, this_machine, why_unfit
from taps.errors import DataError, SettingsError, TapsError
from taps.evaluate.copies import Copies, attempt_there
from taps.evaluate.jobs import Job, prepare, quiet_logs
from taps.evaluate.options import Execution
from taps.evaluate.pool import NOT_BEGUN, Watch, attempt, late, note

log = logging.getLogger("taps")
RETRIES = 3  # of a run whose worker is lost
POLL = 0.25  # seconds between two looks at the cluster
SILENCE = 60.0  # seconds without the board after which a worker is cut off: its run is begun again elsewhere
UNFIT = "unfit"  # the result of a run whose machine cannot carry it out, with its address and why
LOST = "lost"  # that of one whose worker is; Ray's own retries would be used up before it gives up a machine


def run_on_ray(
    jobs: Sequence[Job], out: Path, how: Execution, watch: Watch, copies: Copies | None = None
) -> dict[int, str]:
    """Carry out many runs on a cluster; arguments and result are those of `taps.evaluate.pool.run_jobs`.

    Every machine must see data sets at the same paths, and the folder too unless there are `copies`: then
    runs are copied from and to the address. A run whose worker or machine is lost starts again elsewhere
    from the last sample it committed.
    """
    assert how.ray is not None
    if not jobs:
        return {}
    with connected(how.ray, how) as ray, origin(None if copies else out) as here:
        crew = WorkerPool(ray, jobs, out, how, watch, here, copies)
        try:
            return crew.work()
        except (KeyboardInterrupt, SettingsError):
            crew.halt()
            raise


class WorkerPool:
    """Actors that carry out runs one after the other, as many as the cluster has room for.

    A machine that cannot carry out a run, such as one without the data set, is left out from then on.
    """

    def __init__(
        self, ray: Any, jobs: Sequence[Job], out: Path, how: Execution, watch: Watch, here: Origin,
        copies: Copies | None = None,
    ) -> None:  # fmt: skip
        self.ray, self.jobs, self.out, self.watch, self.copies = ray, jobs, out, watch, copies
        self.deadline = how.deadline()
        # On the machine of this process: no other that is lost takes it along.
        near = {NODE: ray.get_runtime_context().get_node_id()}
        self.board = ray.remote(Progress).options(num_cpus=0, label_selector=near).remote()
        self.worker_args = copies.url if copies else out.resolve(), here, how.device
        self.resources = Resources(ray, how, log)
        self.waiting = deque(enumerate(jobs))
        self.running: dict[Any, tuple[int, Any]] = {}
        self.begun: set[int] = set()
        self.losses = Counter[int]()

    def work(self) -> dict[int, str]:
        """Work until no run is left; why some are unfinished, by index."""
        unfinished: dict[int, str] = {}
        while self.waiting or self.running:
            if late(self.deadline):
                unfinished |= dict.fromkeys((index for index, _ in self.waiting), NOT_BEGUN)
                self.waiting.clear()
                self.board.halt.remote()
            for _ in range(self.wanted() - len(self.running)):
                self.give(self.resources.make(Worker, *self.worker_args))
            done = self.ray.wait(list(self.running), timeout=POLL)[0] if self.running else []
            self.tell_progress(done)
            for reference in done:
                index, worker = self.running.pop(reference)
                what, value = self.result(index, reference)
                if what in (UNFIT, LOST):
                    self.waiting.appendleft((index, self.jobs[index]))
                    self.ray.kill(worker)
                    self.resources.check()
                    continue
                note(unfinished, index, what, value)
                self.begin(index)
                self.watch(what, index, value)
                self.give(worker, lost=self.losses[index] > RETRIES)
        return unfinished

    def result(self, index: int, reference: Any) -> tuple[str, Any]:
        """What became of a run; its files have been fetched."""
        try:
            what, value = self.ray.get(reference)
            if what == UNFIT:
                self.resources.avoid(*value)
            elif self.copies:
                self.copies.fetch(self.out, self.jobs[index].folder(self.out))
            return what, value
        except DataError as error:
            return "failed", str(error)
        except self.ray.exceptions.RayError as error:
            if unfit := why_unfit(error):
                self.resources.avoid(*unfit)
                return UNFIT, unfit
            self.losses[index] += 1
            reason = str(error).strip().split("\n")[0]
            if self.losses[index] <= RETRIES:
                return LOST, reason
            return "failed", f"its worker was lost {RETRIES + 1} times ({reason})"

    def halt(self) -> None:
        """Let every run save where it stands."""
        self.ray.get(self.board.halt.remote())
        if self.running:
            self.ray.wait(list(self.running), num_returns=len(self.running), timeout=30.0)

    def wanted(self) -> int:
        """How many actors there may be; one waits for room, so that a growing cluster sees the demand."""
        return min(len(self.waiting) + len(self.running), max(1, self.resources.places()))

    def give(self, worker: Any, *, lost: bool = False) -> None:
        """Give an actor the next run; end it where there is none, or where it is lost."""
        if self.waiting and not lost:
            index, job = self.waiting.popleft()
            self.running[worker.run.remote(index, job, self.board)] = index, worker
        else:
            self.ray.kill(worker)

    def tell_progress(self, done: Sequence[Any]) -> None:
        active = {index for reference, (index, _) in self.running.items() if reference not in done}
        for index, position in self.ray.get(self.board.news.remote()):
            if index in active:
                self.begin(index)
                self.watch("progress", index, position)

    def begin(self, index: int) -> None:
        """Report the start of a run, once even where it starts again on another machine."""
        if index not in self.begun:
            self.begun.add(index)
            self.watch("start", index, None)


class Progress:
    """An actor that collects how far the runs are, and tells them to stop."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.halted = False

    def tell(self, index: int, position: int) -> bool:
        """Note how far a run is; whether it is to stop."""
        self.positions[index] = position
        return self.halted

    def news(self) -> list[tuple[int, int]]:
        """The positions noted since the last call."""
        positions, self.positions = self.positions, {}
        return list(positions.items())

    def halt(self) -> None:
        self.halted = True


class Worker:
    """An actor that carries out runs; the model stays loaded between them.

    Args:
        place: Of the evaluation: a folder, or an address of fsspec.
        origin: Of the command.
        device: cpu or cuda.
    """

    def __init__(self, place: Path | str, origin: Origin, device: str | None) -> None:
        quiet_logs()
        origin.enter()
        self.place, self.origin, self.device = place, origin, device

    def run(self, index: int, job: Job, board: Any) -> tuple[str, Any]:
        """What became of a run, and its row or the reason why it has none."""
        import ray

        answer, halted = board.tell.remote(index, 0), False

        def tell(position: int) -> None:
            """Called every quarter of a second; the board's last reply says whether to stop."""
            nonlocal answer, halted
            try:
                halted = halted or ray.get(answer, timeout=SILENCE)
            except ray.exceptions.GetTimeoutError:
                os._exit(1)
            answer = board.tell.remote(index, position)

        try:
            self.origin.check()
            prepare(job, self.device)
        except TapsError as error:
            return UNFIT, (this_machine(), str(error))
        halted = ray.get(answer)
        if isinstance(self.place, Path):
            return attempt(job, self.place, self.device, lambda: halted, tell)
        return attempt_there(job, self.place, self.device, lambda: halted, tell)
