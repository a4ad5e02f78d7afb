"""An evaluation from beginning to end, for the command line and the recipes alike."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from taps.evaluate.copies import Copies
from taps.evaluate.folder import UNFINISHED, collect, to_do
from taps.evaluate.jobs import ONCE, Job
from taps.evaluate.options import Execution
from taps.evaluate.plan import open_streams
from taps.evaluate.pool import Watch, run_jobs
from taps.files import locked, write_json


@dataclass(frozen=True)
class Outcome:
    """What an evaluation left behind.

    Attributes:
        rows: Of all finished runs in the folder.
        unfinished: Runs wanted but not finished, with the reason.
    """

    rows: list[dict[str, Any]]
    unfinished: list[dict[str, Any]]


def evaluate(
    jobs: Sequence[Job],
    out: Path,
    how: Execution = Execution(),
    *,
    lengths: dict[str, int] | None = None,
    watcher: Callable[[Sequence[tuple[Job, int]]], Watch] = lambda left: lambda what, index, value: None,
    run: Callable[[Sequence[Job], Path, Execution, Watch], dict[int, str]] = run_jobs,
    copies: Copies | None = None,
) -> Outcome:
    """Run what is not finished yet, and write `results.json`.

    Args:
        jobs: From `make_jobs`.
        out: Folder of the evaluation.
        how: How they are carried out.
        lengths: Images of each stream by its name; counted where not given.
        watcher: Given the runs to come and the images of each, returns who is told what happens.
        run: Carries the runs out; `taps.cluster.runs.run_on_ray` does so on a cluster.
        copies: Gets the files of every run, now and then and when it ends.
    """
    if lengths is None:
        streams = list(dict.fromkeys(job.stream for job in jobs))
        lengths = {stream.name: len(dataset) for stream, dataset in open_streams(streams)}
    left = to_do(out, jobs, lengths, resume=how.resume)
    if copies:
        copies.check()
    say = partial(copies.named, out) if copies else str
    with locked(out):
        watch, collect_if_due = watcher([(job, job.length(lengths)) for job in left]), _now_and_then(out)

        def told(what: str, index: int, value: Any) -> None:
            watch(what, index, say(value) if what == "failed" else value)
            if copies:
                copies.keep_up(out, left[index].folder(out), now=what == "done")
            if what == "done":
                collect_if_due()

        try:
            why = run(left, out, how, told)
        finally:
            rows = collect(out)
            shutil.rmtree(out / ONCE, ignore_errors=True)
        unfinished = [_unfinished(left[index], say(reason)) for index, reason in sorted(why.items())]
        write_json(out / UNFINISHED, {"runs": unfinished})
    return Outcome(rows, unfinished)


def _now_and_then(out: Path) -> Callable[[], None]:
    """Collects the rows so far where two seconds have passed, and fifty times what it took the last time."""
    due = time.monotonic() + 2.0

    def collect_if_due() -> None:
        nonlocal due
        began = time.monotonic()
        if began > due:
            collect(out)
            due = time.monotonic() + max(2.0, 50 * (time.monotonic() - began))

    return collect_if_due


def _unfinished(job: Job, why: str) -> dict[str, Any]:
    return {"dataset": job.stream.name, "method": job.title, "seed": job.seed, "why": why}
