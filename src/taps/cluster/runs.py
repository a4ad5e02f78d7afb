"""The runs of an evaluation as tasks of a Ray cluster: what `taps.evaluate.pool` does on one machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.cluster.connect import connected
from taps.evaluate.jobs import Job, quiet_logs
from taps.evaluate.options import Execution
from taps.evaluate.pool import Watch, attempt, late, note

RETRIES = 3  # of a run whose worker is lost
POLL = 0.25  # seconds between two looks at the cluster


def run_on_ray(jobs: Sequence[Job], out: Path, how: Execution, watch: Watch) -> dict[int, str]:
    """Carry out many runs on a cluster; arguments and result are those of `taps.evaluate.pool.run_jobs`.

    Every machine must see the folder and the data sets at the same paths. A run whose worker or machine is
    lost is begun again elsewhere and goes on from the last sample it committed.
    """
    assert how.ray is not None
    if not jobs:
        return {}
    with connected(how.ray) as ray:
        board = ray.remote(num_cpus=0)(Board).remote()
        task = ray.remote(_run).options(
            num_cpus=how.cpus_per_run, num_gpus=how.gpus_per_run, max_retries=RETRIES
        )
        given = (out.resolve(), Path.cwd(), how.device, how.deadline(), board)
        running = {task.remote(index, job, *given): index for index, job in enumerate(jobs)}
        try:
            return _follow(ray, running, board, watch)
        except KeyboardInterrupt:
            ray.get(board.halt.remote())  # every run saves where it stands
            ray.wait(list(running), num_returns=len(running), timeout=30.0)
            raise


def _follow(ray: Any, running: dict[Any, int], board: Any, watch: Watch) -> dict[int, str]:
    unfinished: dict[int, str] = {}
    begun: set[int] = set()
    waiting = list(running)

    def begin(index: int) -> None:
        """Once, also where a run is begun again on another worker."""
        if index not in begun:
            begun.add(index)
            watch("start", index, None)

    while waiting:
        done, waiting = ray.wait(waiting, timeout=POLL)
        active = {running[reference] for reference in waiting}
        for index, position in ray.get(board.news.remote()):
            if index in active:
                begin(index)
                watch("progress", index, position)
        for reference in done:
            index = running[reference]
            what, value = _result(ray, reference)
            note(unfinished, index, what, value)
            if what != "late":
                begin(index)
                watch(what, index, value)
    return unfinished


def _result(ray: Any, reference: Any) -> tuple[str, Any]:
    try:
        return ray.get(reference)  # type: ignore[no-any-return]
    except ray.exceptions.RayError as error:
        reason = str(error).strip().split("\n")[0]
        return "failed", f"its worker was lost {RETRIES + 1} times ({reason})"


class Board:
    """Where runs say how far they are, and are told to stop."""

    def __init__(self) -> None:
        self.said: dict[int, int] = {}
        self.halted = False

    def tell(self, index: int, position: int) -> bool:
        """Note how far a run is; whether it is to stop."""
        self.said[index] = position
        return self.halted

    def news(self) -> list[tuple[int, int]]:
        """What was said since the last look."""
        said, self.said = self.said, {}
        return list(said.items())

    def halt(self) -> None:
        self.halted = True


def _run(
    index: int, job: Job, out: Path, here: Path, device: str | None, deadline: float | None, board: Any
) -> tuple[str, Any]:
    """One run, in a worker."""
    import ray

    quiet_logs()
    if here.is_dir():  # data sets may be given by relative paths
        os.chdir(here)
    answer, halted = board.tell.remote(index, 0), False

    def tell(position: int) -> None:
        """Every quarter of a second; what the board said last time tells whether to stop."""
        nonlocal answer, halted
        halted = halted or ray.get(answer)
        answer = board.tell.remote(index, position)

    if late(deadline):
        return "late", None
    return attempt(job, out, device, lambda: halted or late(deadline), tell)
