"""The runs of an evaluation on a Ray cluster: what `taps.study.evaluate.pool` does on one machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.cluster.connect import connected
from taps.cluster.machines import NODE, Origin, Resources, origin, this_machine
from taps.cluster.tasks import CANCELLED, LOST, RETRIES, UNFIT, Tasks
from taps.errors import SettingsError, TapsError
from taps.study.evaluate.jobs import Job, prepare, quiet_logs
from taps.study.evaluate.options import Execution
from taps.study.evaluate.pool import NOT_BEGUN, Watch, attempt, late, note

log = logging.getLogger("taps")
SILENCE = 60.0  # seconds without the board after which a worker ends: its run starts again elsewhere


def run_on_ray(jobs: Sequence[Job], out: Path, how: Execution, watch: Watch) -> dict[int, str]:
    """Carry out many runs on a cluster; arguments and result are those of `study.evaluate.pool.run_jobs`.

    Every machine must see data sets and the folder at the same paths. A run whose worker or machine is lost
    starts again elsewhere from the last sample it committed.
    """
    assert how.ray is not None
    if not jobs:
        return {}
    with connected(how.ray, how) as ray, origin(out) as here:
        # On the machine of this process: no other that is lost takes it along.
        near = {NODE: ray.get_runtime_context().get_node_id()}
        board = ray.remote(Progress).options(num_cpus=0, label_selector=near).remote()
        place = out.resolve()
        given = [(index, job, board, place, here, how.device) for index, job in enumerate(jobs)]
        runs = Tasks(Resources(ray, how, log), run_there, given)
        try:
            return _follow(runs, board, how.deadline(), watch)
        except (KeyboardInterrupt, SettingsError):
            ray.get(board.halt.remote())  # every run saves where it stands
            runs.cancel()
            if runs.running:
                ray.wait(list(runs.running), num_returns=len(runs.running), timeout=30.0)
            raise


def _follow(runs: Tasks, board: Any, deadline: float | None, watch: Watch) -> dict[int, str]:
    """Wait until no run is left; why some are unfinished, by index."""
    unfinished: dict[int, str] = {}
    started = set[int]()

    def tell(what: str, index: int, value: Any) -> None:
        if index not in started:  # once, even where the run starts again on another machine
            started.add(index)
            watch("start", index, None)
        watch(what, index, value)

    while runs.running:
        if late(deadline):
            board.halt.remote()
            runs.cancel()
        ended = list(runs.ended())
        active = set(runs.running.values())
        for index, position in runs.ray.get(board.news.remote()):
            if index in active:
                runs.begun.add(index)
                tell("progress", index, position)
        for index, (what, value) in ended:
            if what == CANCELLED:
                unfinished[index] = NOT_BEGUN
                continue
            if what == LOST:
                what, value = "failed", f"its worker was lost {RETRIES + 1} times ({value})"
            note(unfinished, index, what, value)
            tell(what, index, value)
    return unfinished


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


def run_there(
    index: int, job: Job, board: Any, place: Path, origin: Origin, device: str | None
) -> tuple[str, Any]:
    """Carry out a run on a machine of the cluster; what became of it, and its row or why it has none.

    Model and data set stay in memory for the next run in the same process.
    """
    import ray

    quiet_logs()
    origin.enter()
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
        origin.check()
        prepare(job, device)
    except TapsError as error:
        return UNFIT, (this_machine(), str(error))
    halted = ray.get(answer)
    return attempt(job, place, device, lambda: halted, tell)
