"""The folder of an evaluation: what is in it, what may be added, and the rows of all finished runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from taps.errors import DamagedError, DataError, StateError
from taps.evaluate.jobs import ROW, Job, StreamSpec, slug
from taps.evaluate.pooled import write_pooled
from taps.files import check_mark, make_folder, read_json, write_json
from taps.session.record import SPEC

log = logging.getLogger("taps")
RESULTS, UNFINISHED = "results.json", "unfinished.json"
SAME = ("method", "settings", "noise", "delay")


def run_folders(out: Path) -> list[Path]:
    """Folders of runs that were begun: runs/<dataset>/<method>/<seed>."""
    return sorted(path.parent for path in out.glob(f"runs/*/*/*/{SPEC}"))


def read_spec(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / SPEC)
    except (OSError, StateError) as error:
        raise DataError(f"{error}; remove {folder} and run again.") from error


def read_row(folder: Path) -> dict[str, Any] | None:
    """The row of a finished run; None where there is none, or a damaged one: the run is then done again."""
    if not (folder / ROW).is_file():
        return None
    try:
        row = read_json(folder / ROW)
    except (OSError, StateError) as error:
        log.warning("%s; the run in %s counts as unfinished.", error, folder)
        return None
    return row if "top1" in row else None


def check_files(folder: Path, row: dict[str, Any]) -> None:
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
    write_pooled(out, rows)
    return rows


def to_do(out: Path, jobs: Sequence[Job], lengths: dict[str, int], *, resume: bool) -> list[Job]:
    """The jobs that are not finished in this folder; a sentence where they do not belong into it.

    Args:
        out: Folder of the evaluation.
        jobs: What is wanted.
        lengths: Images of each stream, by its name.
        resume: Whether going on with what is there is wanted.
    """
    make_folder(out)
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


def _check_company(out: Path, spec: dict[str, Any], jobs: Sequence[Job]) -> None:
    """Whatever stands in one table must share the model, and one folder's name must mean one stream."""
    for job in jobs:
        if spec["model"] != asdict(job.model):
            raise DataError(
                f"{out} was made with the model {spec['model']['name']}, now it is {job.model.name}; "
                "choose another --out."
            )
        begun = StreamSpec(**spec["stream"])
        if slug(begun.name) == slug(job.stream.name) and begun != job.stream:
            raise DataError(
                f"{out} knows {job.stream.name} as {spec['stream']}, now it is another; choose another --out."
            )


def _check_same(folder: Path, spec: dict[str, Any], job: Job) -> None:
    mine = json.loads(json.dumps(asdict(job)))
    for name in SAME:
        if spec[name] != mine[name]:
            raise DataError(
                f"The run in {folder} was started with {name} {_told(spec[name], mine[name])}; "
                "use the same and --resume, or choose another --out."
            )
    # Streams of one seed begin alike, so a longer one goes on where the shorter one ended.
    if mine["limit"] is not None and (spec["limit"] is None or spec["limit"] > mine["limit"]):
        raise DataError(
            f"The run in {folder} was started with limit {spec['limit']}, more than {mine['limit']}; "
            "use the same or more and --resume, or choose another --out."
        )


def _told(theirs: Any, mine: Any) -> str:
    """Only what differs, where two settings are compared."""
    if not isinstance(theirs, dict):
        return f"{theirs}, now {mine}"
    names = sorted(name for name in {*theirs, *mine} if theirs.get(name) != mine.get(name))
    return "; ".join(
        f"{name}={theirs.get(name, 'default')}, now {mine.get(name, 'default')}" for name in names
    )
