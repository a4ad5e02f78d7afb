"""The results of an evaluation, read back for a report: rows and predictions that can be compared."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from taps.errors import DamagedError, DataError, SettingsError
from taps.files import read_json
from taps.study.evaluate.evaluate import UNFINISHED, check_files, read_row, read_spec, run_folders
from taps.study.evaluate.jobs import slug
from taps.study.evaluate.pooled import BASELINE, BLOCKS, RICHER, block_of
from taps.study.evaluate.scores import Run, answers_at, measured, read_run
from taps.study.evaluate.statistics import Paired, compare

log = logging.getLogger("taps")
ORDER = (
    *("zero_shot", "source", "view_ensemble", "tpt", "tpt_skip", "coop", "coop+tpt"),
    *("cocoop", "cocoop+tpt", "proda", "maple", "maple+tpt", "promptalign", "taps"),
)
"""Methods as tables list them: the order of the paper's."""


def method_rank(method: str) -> tuple[int, str]:
    """Sorts methods by `ORDER`; others come last, by name."""
    return (ORDER.index(method) if method in ORDER else len(ORDER), method)


@dataclass(frozen=True)
class Result:
    """One finished run, cut to the images that all runs on its data set have.

    Attributes:
        spec: What was run.
        row: Its row; `measures` are those of the images kept.
        seen: Its predictions of these images.
        whole: How many predictions it has in all.
    """

    folder: Path
    spec: dict[str, Any]
    row: dict[str, Any]
    seen: Run
    whole: int

    @property
    def run(self) -> Run:
        """Its predictions without those of images of no class."""
        return self.seen.inside

    @property
    def seed(self) -> int:
        return int(self.spec["seed"])

    @property
    def top1(self) -> float:
        return float(self.run.correct.mean())

    @property
    def rate(self) -> float:
        return float(self.seen.asked.mean())

    @cached_property
    def answers(self) -> list[int]:
        """Places in the stream whose labels were given."""
        return answers_at(self.folder)


Runs = dict[tuple[str, str], list[Result]]
"""Runs by data set and method."""


@dataclass(frozen=True)
class Results:
    """Everything that was finished in a folder.

    Attributes:
        results: The runs by data set and method, in the order of seeds.
        unfinished: Runs that were wanted and are not finished, with the reason.
        dropped: Finished runs that are left out because other methods lack their seed.
        block: The kind of class texts, where only runs with one kind were read.
    """

    results: Runs
    unfinished: list[dict[str, Any]]
    dropped: int = 0
    block: str | None = None

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(dataset for dataset, _ in self.results))

    @property
    def methods(self) -> list[str]:
        return sorted({method for _, method in self.results}, key=method_rank)

    @property
    def failed(self) -> list[str]:
        """Methods that were wanted and have no finished run at all."""
        return sorted({run["method"] for run in self.unfinished} - {*self.methods}, key=method_rank)

    @property
    def cells(self) -> list[tuple[str, str]]:
        """Data sets and methods that have runs, as tables list them."""
        return [(dataset, method) for dataset in self.datasets for method in self.methods_of(dataset)]

    @property
    def seeds(self) -> list[int]:
        return sorted({result.seed for runs in self.results.values() for result in runs})

    @property
    def model(self) -> dict[str, Any]:
        model: dict[str, Any] = next(iter(self.results.values()))[0].spec["model"]
        return model

    @cached_property
    def pages(self) -> dict[tuple[str, str], str]:
        """Path of the page about each method on each data set, relative to the page that links to it."""
        found: dict[tuple[str, str], str] = {}
        for dataset, method in self.results:
            folder = f"runs/{slug(dataset)}/{slug(method)}{'~texts' if self.block == RICHER else ''}"
            while f"{folder}/index.html" in found.values():  # "a/b" and "a-b" have one name as folders
                folder += "~"
            found[dataset, method] = f"{folder}/index.html"
        return found

    def only(self, methods: Container[str], datasets: Container[str]) -> Results:
        """The results of these methods on these data sets."""
        kept = {key: runs for key, runs in self.results.items() if key[0] in datasets and key[1] in methods}
        missing = [run for run in self.unfinished if run["dataset"] in datasets and run["method"] in methods]
        return replace(self, results=kept, unfinished=missing)

    def by_texts(self) -> dict[str, Results]:
        """The results by the kind of class texts, without empty kinds."""
        found: dict[str, Runs] = {block: {} for block in BLOCKS}
        for key, runs in self.results.items():
            found[block_of(runs[0].spec["method"], runs[0].spec["settings"])][key] = runs
        return {block: replace(self, results=those) for block, those in found.items() if those}

    def missing(self) -> list[str]:
        """One sentence for each method and data set with unfinished runs."""
        seeds: dict[tuple[str, str, str], list[str]] = {}
        for run in self.unfinished:
            seeds.setdefault((run["method"], run["dataset"], run["why"]), []).append(str(run["seed"]))
        return [
            f"Unfinished: {method} on {dataset}, seed {', '.join(found)}: {why}."
            for (method, dataset, why), found in seeds.items()
        ]

    def stream(self, dataset: str) -> dict[str, Any]:
        """Where the images of a data set came from."""
        first = next(runs[0] for (name, _), runs in self.results.items() if name == dataset)
        stream: dict[str, Any] = first.spec["stream"]
        return stream

    def of(self, dataset: str, method: str) -> list[Result]:
        return self.results.get((dataset, method), [])

    def methods_of(self, dataset: str) -> list[str]:
        return [method for method in self.methods if self.of(dataset, method)]

    def paired(self, dataset: str, method: str, baseline: str) -> Paired | None:
        """The method against the baseline over the seeds both have."""
        theirs = {result.seed: result.run for result in self.of(dataset, baseline)}
        mine = [result for result in self.of(dataset, method) if result.seed in theirs]
        pairs = [(one.run.paths, one.run.correct, theirs[one.seed].correct) for one in mine]
        return compare(pairs, np.random.default_rng(0)) if pairs else None


def read_results(
    out: Path | Sequence[Path], *, baseline: str | None = BASELINE, block: str | None = None
) -> Results:
    """Read a folder, finished or not. Runs on one data set are cut to the seeds and images that all have.

    Args:
        out: Folder of an evaluation; or several of one model, none of which repeats a run of another.
        baseline: The method others are compared with; None for zero-shot, or else the first there is.
        block: Only runs of one of `taps.study.evaluate.pooled.BLOCKS`.
    """
    outs = [out] if isinstance(out, Path) else list(out)
    for each in outs:
        if not run_folders(each):
            raise DataError(f"{each} holds no results of `taps eval`; give the folder that was its --out.")
    found: Runs = {}
    for folder, spec, row in _finished(outs):
        if block in (None, block_of(spec["method"], spec["settings"])):
            check_files(folder, row)
            run = read_run(folder).first(row["n"])  # a run that is being continued has more of them
            result = Result(folder, spec, row, run, len(run))
            found.setdefault((row["dataset"], row["method"]), []).append(result)
    if not found:
        raise DataError(f"No run in {outs[0]} is finished; go on with `taps eval … --resume`.")
    _check_together(found)
    baseline = baseline or min((method for _, method in found), key=method_rank)
    if not any(method == baseline for _, method in found):
        methods = ", ".join(sorted({method for _, method in found}))
        raise SettingsError(f"{baseline!r} has no results to compare with; choose from {methods}.")
    have = {(*key, result.seed) for key, runs in found.items() for result in runs}
    alike = _of_common_seeds(found, baseline)
    least: dict[str, int] = {}  # predictions that every run on a data set has
    for (dataset, _), runs in alike.items():
        shortest = min(result.whole for result in runs)
        least[dataset] = min(shortest, least.get(dataset, shortest))
    results = {
        key: sorted((_cut(result, least[key[0]]) for result in runs), key=lambda result: result.seed)
        for key, runs in alike.items()
    }
    _check_alike(results)
    dropped = len(have) - sum(map(len, alike.values()))
    unfinished = [run for each in outs for run in unfinished_runs(each)]
    return Results(results, unfinished, dropped, block)


def blocks_in(folders: Sequence[Path]) -> dict[str, set[str]]:
    """The blocks that folders of evaluations have finished runs of, and the methods in each."""
    found: dict[str, set[str]] = {block: set() for block in BLOCKS}
    for _, spec, row in _finished(folders):
        found[block_of(spec["method"], spec["settings"])].add(row["method"])
    return {block: methods for block, methods in found.items() if methods}


def _finished(outs: Sequence[Path]) -> Iterator[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """Folder, spec and row of every finished run."""
    for folder in (folder for out in outs for folder in run_folders(out)):
        spec, row = read_spec(folder), read_row(folder)
        if row is not None:
            yield folder, spec, row


def _check_together(found: Runs) -> None:
    """Refuse runs of folders that cannot stand in one table."""
    models = {tuple(one.spec["model"].values()): one.folder for runs in found.values() for one in runs}
    if len(models) > 1:
        one, other = list(models.values())[:2]
        raise DataError(f"{one} and {other} were made with different models; compare folders of one model.")
    for (dataset, method), runs in found.items():
        seeds = [result.seed for result in runs]
        if len({*seeds}) < len(seeds):
            raise DataError(f"Two folders have {method} on {dataset} with the same seed; give one of them.")


def _check_alike(found: Runs) -> None:
    """Refuse runs that did not see the same images in the same order."""
    seen: dict[tuple[str, int], list[str]] = {}
    for (dataset, method), runs in found.items():
        for one in runs:
            if seen.setdefault((dataset, one.seed), one.run.paths) != one.run.paths:
                raise DataError(
                    f"{method} did not see the same images of {dataset} in the same order as the others "
                    f"(seed {one.seed}); run it again into one folder with them."
                )


def _cut(result: Result, n: int) -> Result:
    """The result of the first `n` images."""
    row, first = result.row, result.seen.first(n)
    measures = row.get("measures", {})
    if n < result.whole or "measures" not in row:
        measures = measures | measured(first)
    return replace(result, row={**row, "measures": measures}, seen=first)


def _of_common_seeds(found: Runs, baseline: str) -> Runs:
    """For each data set the runs of seeds that every method has: other orders cannot be compared.

    A method that shares no seed with the baseline is left out.
    """
    common: dict[str, set[int]] = {}
    for dataset, method in sorted(found, key=lambda key: key[1] != baseline):
        seeds = {result.seed for result in found[dataset, method]}
        common[dataset] = (common.get(dataset, seeds) & seeds) or common[dataset]
    kept = {key: [one for one in runs if one.seed in common[key[0]]] for key, runs in found.items()}
    return {key: runs for key, runs in kept.items() if {one.seed for one in runs} == common[key[0]]}


def unfinished_runs(out: Path) -> list[dict[str, Any]]:
    """Runs without any result. A run that is being continued has a result, of fewer images."""
    try:
        noted: list[dict[str, Any]] = read_json(out / UNFINISHED)["runs"]
    except FileNotFoundError:
        return []
    except (DamagedError, KeyError) as error:
        log.warning("%s; unfinished runs are not listed.", error)
        return []
    folders = [out / "runs" / slug(run["dataset"]) / slug(run["method"]) / str(run["seed"]) for run in noted]
    return [run for run, folder in zip(noted, folders, strict=True) if read_row(folder) is None]


def mean_of(results: Sequence[Result], name: str) -> float:
    """Mean of one number of the rows."""
    return float(np.mean([result.row[name] for result in results]))
