"""An evaluation from beginning to end, and its folder: what is in it, and which runs it may take."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from taps.disk import claim, remove_tree
from taps.errors import DamagedError, DataError, StateError
from taps.files import check_mark, locked, read_json, write_json
from taps.streams.record import SPEC, is_run
from taps.study.evaluate.jobs import OUTPUTS_FOLDER, ROW, Job, StreamSpec, slug
from taps.study.evaluate.options import Execution, Setup
from taps.study.evaluate.plan import Entry, open_streams, plan_evaluation
from taps.study.evaluate.pool import Watch, run_jobs
from taps.study.evaluate.pooled import POOLED, pool

log = logging.getLogger("taps")
RESULTS, UNFINISHED = "results.json", "unfinished.json"


@dataclass(frozen=True)
class Outcome:
    """The rows of all finished runs in the folder; the runs wanted but not finished, with the reason."""

    rows: list[dict[str, Any]]
    unfinished: list[dict[str, Any]]


def evaluate(
    dataset: str | Sequence[str],
    methods: Sequence[Entry],
    out: str | Path,
    how: Execution = Execution(resume=True),
    **setup: Any,
) -> Outcome:
    """Run methods on data sets; all runs are in `results.json` of the folder.

    Args:
        dataset: Names or paths.
        methods: By name; or (name in tables, method, settings) for variants of one.
        out: Folder of the evaluation; what is finished in it is not run again.
        how: Processes, device, time.
        setup: Other fields of `Setup`: model, seeds, limit, settings, …
    """
    names = (dataset,) if isinstance(dataset, str) else tuple(dataset)
    jobs, lengths = plan_evaluation(Setup(names, **setup), methods)
    return evaluate_jobs(jobs, Path(out), how, lengths=lengths)


def evaluate_jobs(
    jobs: Sequence[Job],
    out: Path,
    how: Execution = Execution(),
    *,
    lengths: Mapping[str, int] | None = None,
    watcher: Callable[[Sequence[tuple[Job, int]]], Watch] = lambda left: lambda what, index, value: None,
    run: Callable[[Sequence[Job], Path, Execution, Watch], dict[int, str]] = run_jobs,
) -> Outcome:
    """Run what is not finished yet, and write `results.json`.

    Args:
        jobs: From `make_jobs`.
        out: Folder of the evaluation.
        how: Processes, device, time.
        lengths: Images of each stream by its name; counted where not given.
        watcher: Takes the runs to come with their numbers of images; returns what is called with events.
        run: Carries the runs out; `taps.cluster.runs.run_on_ray` does so on a cluster.
    """
    if lengths is None:
        streams = list(dict.fromkeys(job.stream for job in jobs))
        lengths = {stream.name: len(dataset) for stream, dataset in open_streams(streams)}
    left = to_do(out, jobs, lengths, resume=how.resume)
    with locked(out):
        watch, due = watcher([(job, job.length(lengths)) for job in left]), time.monotonic() + 2.0

        def on_event(what: str, index: int, value: Any) -> None:
            nonlocal due
            watch(what, index, value)
            if what == "done" and (began := time.monotonic()) > due:
                collect(out)
                due = began + max(2.0, 50 * (time.monotonic() - began))  # 2 % of the time at most

        try:
            why = run(left, out, how, on_event)
        finally:
            rows = collect(out)
            remove_tree(out / OUTPUTS_FOLDER)
        named = [(left[index], reason) for index, reason in sorted(why.items())]
        unfinished = [
            {"dataset": job.stream.name, "method": job.title, "seed": job.seed, "why": reason}
            for job, reason in named
        ]
        write_json(out / UNFINISHED, {"runs": unfinished})
    return Outcome(rows, unfinished)


def run_folders(out: Path) -> list[Path]:
    """Folders of runs that were begun: runs/<dataset>/<method>/<seed>."""
    return sorted(path.parent for path in out.glob(f"runs/*/*/*/{SPEC}"))


def is_evaluation(out: Path) -> bool:
    """Whether a folder holds an evaluation, of an older version too."""
    return any(map(is_run, run_folders(out)))


def read_spec(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / SPEC)
    except (OSError, StateError) as error:
        raise DataError(f"{error}; remove {folder} and run again.") from error


def read_row(folder: Path) -> dict[str, Any] | None:
    """The row of a finished run; None where it is missing or damaged: the run is then done again."""
    if not (folder / ROW).is_file():
        return None
    try:
        row = read_json(folder / ROW)
    except (OSError, StateError) as error:
        log.warning("%s; the run in %s counts as unfinished.", error, folder)
        return None
    return row if "top1" in row else None


def check_files(folder: Path, row: Mapping[str, Any]) -> None:
    """Refuse a finished run whose files are not those that its row was made from."""
    for name, mark in row.get("files", {}).items():
        try:
            check_mark(folder / name, mark)
        except FileNotFoundError as error:
            raise DataError(f"{folder / name} is missing; remove {folder} and run again.") from error
        except (OSError, DamagedError) as error:
            raise DataError(f"{error}; remove {folder} and run again.") from error


def collect(out: Path) -> list[dict[str, Any]]:
    """The rows of all finished runs; `results.json` and `pooled.json` are written anew from them."""
    found = [row for folder in run_folders(out) if (row := read_row(folder)) is not None]
    rows = [{name: row[name] for name in row if name not in ("files", "format")} for row in found]
    rows.sort(key=lambda row: (row["dataset"], row["method"], row["seed"]))
    write_json(out / RESULTS, rows)
    write_json(out / POOLED, [asdict(each) for each in pool(rows)])
    return rows


def to_do(out: Path, jobs: Sequence[Job], lengths: Mapping[str, int], *, resume: bool) -> list[Job]:
    """The jobs that are not finished in this folder.

    Raises:
        DataError: The folder holds an evaluation that `resume` does not allow, or that the jobs do not match.
    """
    claim(out, is_evaluation)
    begun = {folder: read_spec(folder) for folder in run_folders(out)}
    for spec in begun.values():
        _check_company(out, spec, jobs)
    finished = sum(read_row(folder) is not None for folder in begun)
    if begun and not resume:
        raise DataError(
            f"{out} holds an evaluation already ({finished} of {len(begun)} runs finished); "
            "add --resume to continue it, or choose another --out."
        )
    left = []
    for job in jobs:
        folder = job.folder(out)
        if folder in begun:
            _check_same(folder, begun[folder], job)
        row = read_row(folder)
        if row is None or row["n"] + row["broken"] < job.length(lengths):
            left.append(job)
    return left


def _check_company(out: Path, spec: Mapping[str, Any], jobs: Sequence[Job]) -> None:
    """Whatever stands in one table must share the model, and one folder's name must mean one stream."""
    begun = StreamSpec(**spec["stream"])
    for job in jobs:
        if spec["model"] != asdict(job.model):
            raise DataError(
                f"{out} was made with the model {spec['model']['name']}, now it is {job.model.name}; "
                "choose another --out."
            )
        if slug(begun.name) == slug(job.stream.name) and begun != job.stream:
            raise DataError(
                f"{out} has another stream in the folder of {job.stream.name}: {spec['stream']}; "
                "choose another --out."
            )


def _check_same(folder: Path, spec: Mapping[str, Any], job: Job) -> None:
    mine = json.loads(json.dumps(asdict(job)))
    for name in ("method", "settings", "noise", "delay"):
        if spec[name] != mine[name]:
            raise DataError(
                f"The run in {folder} was started with {name} {_difference(spec[name], mine[name])}; "
                "use the same and --resume, or choose another --out."
            )
    # Streams of one seed begin alike, so a longer one goes on where the shorter one ended.
    if mine["limit"] is not None and (spec["limit"] is None or spec["limit"] > mine["limit"]):
        raise DataError(
            f"The run in {folder} was started with limit {spec['limit']}, more than {mine['limit']}; "
            "use the same or more and --resume, or choose another --out."
        )


def _difference(theirs: Any, mine: Any) -> str:
    """The two values; of two dicts of settings only what differs."""
    if not isinstance(theirs, dict):
        return f"{theirs}, now {mine}"
    names = sorted(name for name in {*theirs, *mine} if theirs.get(name) != mine.get(name))
    return "; ".join(
        f"{name}={theirs.get(name, 'default')}, now {mine.get(name, 'default')}" for name in names
    )
