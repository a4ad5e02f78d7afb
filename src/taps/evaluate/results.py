"""The results of an evaluation read back for a report: rows and predictions, comparable with each other."""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from taps.errors import DamagedError, DataError, SettingsError
from taps.evaluate.blocks import BLOCKS, RICHER, block_of
from taps.evaluate.folder import UNFINISHED, check_files, read_row, read_spec, run_folders
from taps.evaluate.jobs import slug
from taps.evaluate.pooled import BASELINE
from taps.evaluate.scores import Run, answers_at, measured, read_run
from taps.evaluate.statistics import Paired, compare
from taps.files import read_json

log = logging.getLogger("taps")
ORDER = (
    *("zero_shot", "source", "view_ensemble", "tpt", "tpt_skip", "coop", "coop+tpt"),
    *("cocoop", "cocoop+tpt", "proda", "maple", "maple+tpt", "promptalign", "taps"),
)
"""Methods as tables list them: the order of the paper's."""


def method_rank(method: str) -> tuple[int, str]:
    """Sorts methods by `ORDER`; those it does not have come last, by name."""
    return (ORDER.index(method) if method in ORDER else len(ORDER), method)


@dataclass(frozen=True)
class Result:
    """One finished run.

    Attributes:
        folder: Where its files lie.
        spec: What was run.
        row: The numbers of its row; its `measures` are of as many images as all runs on this data set have.
        seen: Its predictions of these.
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


Found = dict[tuple[str, str], list[Result]]
"""Runs by data set and method."""


@dataclass(frozen=True)
class Results:
    """Everything that was finished in a folder.

    Attributes:
        out: The folder.
        results: By data set, method and seed.
        unfinished: Runs that were wanted and are not finished, with the reason.
        dropped: Finished runs that are left out because other methods lack their seed.
        block: What kind of class texts its runs have, where only those of one were read.
    """

    out: Path
    results: Found
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
    def model(self) -> dict[str, Any]:
        found: dict[str, Any] = next(iter(self.results.values()))[0].spec["model"]
        return found

    @cached_property
    def pages(self) -> dict[tuple[str, str], str]:
        """Where the page about a method on a data set lies, below the page that links to it."""
        found: dict[tuple[str, str], str] = {}
        for dataset, method in self.results:
            folder = f"runs/{slug(dataset)}/{slug(method)}{'~texts' if self.block == RICHER else ''}"
            while f"{folder}/index.html" in found.values():  # "a/b" and "a-b" have one name as folders
                folder += "~"
            found[dataset, method] = f"{folder}/index.html"
        return found

    def only(self, methods: Container[str], datasets: Container[str]) -> Results:
        """The same without other methods and data sets."""
        kept = {key: runs for key, runs in self.results.items() if key[0] in datasets and key[1] in methods}
        missing = [run for run in self.unfinished if run["dataset"] in datasets and run["method"] in methods]
        return replace(self, results=kept, unfinished=missing)

    def by_texts(self) -> dict[str, Results]:
        """The same in parts, by the kind of class texts; there is a run of each."""
        found: dict[str, Found] = {block: {} for block in BLOCKS}
        for key, runs in self.results.items():
            found[block_of(runs[0].spec["method"], runs[0].spec["settings"])][key] = runs
        return {block: replace(self, results=those) for block, those in found.items() if those}

    def missing(self) -> list[str]:
        """One sentence for each method on a data set that lacks runs."""
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
        pairs = []
        for result in self.of(dataset, method):
            other = theirs.get(result.seed)
            if other is None:
                continue
            if other.keys != result.run.keys:
                raise DataError(
                    f"{method} and {baseline} did not see the same images of {dataset} in the same order "
                    f"(seed {result.seed}); run them again into one new folder."
                )
            pairs.append((result.run.keys, result.run.correct, other.correct))
        return compare(pairs, np.random.default_rng(0)) if pairs else None


def read_results(
    out: Path | Sequence[Path], *, baseline: str | None = BASELINE, block: str | None = None
) -> Results:
    """Read a folder, finished or not. Runs on one data set are cut to the seeds and images that all have.

    Args:
        out: Folder of an evaluation; or several of one model, none of which repeats a run of another.
        baseline: The method others are compared with; None for zero-shot, or else the first there is.
        block: Only runs of one of `taps.evaluate.blocks.BLOCKS`.
    """
    outs = [out] if isinstance(out, Path) else list(out)
    for each in outs:
        if not run_folders(each):
            raise DataError(f"{each} holds no results of `taps eval`; give the folder that was its --out.")
    found: Found = {}
    for folder in (folder for each in outs for folder in run_folders(each)):
        spec, row = read_spec(folder), read_row(folder)
        wanted = block is None or block == block_of(spec["method"], spec["settings"])
        if row is not None and wanted:
            check_files(folder, row)
            run = read_run(folder).first(row["n"])  # a run that is made longer has more of them
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
    least = _common_lengths(alike)
    results = {
        key: sorted((_cut(result, least[key[0]]) for result in runs), key=lambda result: result.seed)
        for key, runs in alike.items()
    }
    dropped = len(have) - sum(map(len, alike.values()))
    unfinished = [run for each in outs for run in _unfinished(each, have)]
    return Results(outs[0], results, unfinished, dropped, block)


def blocks_in(folders: Sequence[Path]) -> dict[str, set[str]]:
    """The blocks that folders of evaluations have finished runs of, and the methods in each."""
    found: dict[str, set[str]] = {block: set() for block in BLOCKS}
    for folder in (folder for each in folders for folder in run_folders(each)):
        spec, row = read_spec(folder), read_row(folder)
        if row is not None:
            found[block_of(spec["method"], spec["settings"])].add(row["method"])
    return {block: methods for block, methods in found.items() if methods}


def _check_together(found: Found) -> None:
    """Refuse runs of folders that cannot stand in one table."""
    models = {tuple(one.spec["model"].values()): one.folder for runs in found.values() for one in runs}
    if len(models) > 1:
        one, other = list(models.values())[:2]
        raise DataError(f"{one} and {other} were made with other models; compare folders of one model.")
    for (dataset, method), runs in found.items():
        seeds = [result.seed for result in runs]
        if len({*seeds}) < len(seeds):
            raise DataError(f"Two folders have {method} on {dataset} with the same seed; give one of them.")


def _cut(result: Result, n: int) -> Result:
    """The same as if it had stopped after `n` images, with measures of these."""
    row, first = result.row, result.seen.first(n)
    measures = row.get("measures", {})
    if n < result.whole or "measures" not in row:
        measures = measures | measured(first)
    return replace(result, row={**row, "measures": measures}, seen=first)


def _of_common_seeds(found: Found, baseline: str) -> Found:
    """For each data set the runs of seeds that every method has: accuracies over other orders are not alike.

    A method that shares no seed with the baseline is left out rather than everything else.
    """
    common: dict[str, set[int]] = {}
    for dataset, method in sorted(found, key=lambda key: key[1] != baseline):
        seeds = {result.seed for result in found[dataset, method]}
        common[dataset] = (common.get(dataset, seeds) & seeds) or common[dataset]
    kept = {key: [one for one in runs if one.seed in common[key[0]]] for key, runs in found.items()}
    return {key: runs for key, runs in kept.items() if {one.seed for one in runs} == common[key[0]]}


def _unfinished(out: Path, have: set[tuple[str, str, int]]) -> list[dict[str, Any]]:
    """Runs without any result. One that was to be made longer has a result, of fewer images."""
    try:
        noted: list[dict[str, Any]] = read_json(out / UNFINISHED)["runs"]
    except FileNotFoundError:
        return []
    except (DamagedError, KeyError) as error:
        log.warning("%s; which runs are unfinished is not told.", error)
        return []
    return [run for run in noted if (run["dataset"], run["method"], run["seed"]) not in have]


def _common_lengths(found: Found) -> dict[str, int]:
    """For each data set the number of predictions that every run on it has."""
    least: dict[str, int] = {}
    for (dataset, _), runs in found.items():
        least[dataset] = min(least.get(dataset, runs[0].whole), *(result.whole for result in runs))
    return least


def mean_of(results: Sequence[Result], name: str) -> float:
    """Mean of one number of the rows."""
    return float(np.mean([result.row[name] for result in results]))
