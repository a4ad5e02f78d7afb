"""The measures of each method on each data set: of all its runs, and over 15 corruptions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taps.evaluate.measures import MEASURES, pooled
from taps.files import write_json

POOLED = "pooled.json"
BASELINE = "zero_shot"
CORRUPTIONS = 15
CORRUPTED = re.compile(r"(.*\+imagenet-c(?:-like)?)/(\w+)-([1-5])(.*)")  # older results say imagenet-c

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Pooled:
    """One method on one data set.

    Attributes:
        dataset: Its name.
        method: As tables call it.
        seeds: How many orders were pooled.
        measures: Name → number, as `taps.evaluate.measures` says how.
        images: Predicted images of one order, at most.
        gain: Difference of its top-1 to zero-shot's over the orders both have; None where there is none with
            the same kind of class texts.
    """

    dataset: str
    method: str
    seeds: int
    measures: dict[str, float]
    images: int = 0
    gain: float | None = None


def pool(rows: Sequence[Row]) -> list[Pooled]:
    """One for each data set and method, in the order of the rows; then one for each corrupted set."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["method"]), []).append(row)
    found = []
    for (dataset, method), runs in groups.items():
        values = {name: pooled(measure, runs) for name, measure in MEASURES.items()}
        known = {name: value for name, value in values.items() if value is not None}
        base = {
            row["seed"]: row["top1"]
            for row in groups.get((dataset, BASELINE), ())
            if row.get("texts") == runs[0].get("texts")
        }
        gains = [row["top1"] - base[row["seed"]] for row in runs if row["seed"] in base]
        gain = float(np.mean(gains)) if gains and method != BASELINE else None
        seeds, images = len({row["seed"] for row in runs}), max(row["n"] for row in runs)
        found.append(Pooled(dataset, method, seeds, known, images, gain))
    return found + _corrupted(rows)


def _corrupted(rows: Sequence[Row]) -> list[Pooled]:
    """Mean corruption error where all fifteen are there; zero-shot is what errors are relative to."""
    errors: dict[tuple[str, str], dict[str, dict[tuple[str, int], float]]] = {}
    for row in rows:
        if match := CORRUPTED.fullmatch(row["dataset"]):
            name, kind, severity, rest = match.groups()
            kinds = errors.setdefault((name + rest, row["method"]), {})
            kinds.setdefault(kind, {})[severity, row["seed"]] = 1 - row["top1"]
    found = []
    for (dataset, method), kinds in errors.items():
        mce = mean_corruption_error(kinds, errors.get((dataset, BASELINE), {}))
        if mce is not None:
            seeds = {seed for runs in kinds.values() for _, seed in runs}
            found.append(Pooled(dataset, method, len(seeds), {"mce": mce}))
    return found


def mean_corruption_error(
    mine: Mapping[str, Mapping[Any, float]], baseline: Mapping[str, Mapping[Any, float]]
) -> float | None:
    """Mean over the corruptions of Σ error / Σ error of the baseline, the sums over severities and orders.

    Args:
        mine: Errors by corruption, and there by severity and order.
        baseline: The same of the baseline. ImageNet-C's own is AlexNet; here it is zero-shot.

    Returns:
        None where a corruption is missing, or the two were not measured on the same.
    """
    if len(mine) != CORRUPTIONS or {k: set(v) for k, v in mine.items()} != {
        k: set(v) for k, v in baseline.items()
    }:
        return None
    ratios = [sum(runs.values()) / max(sum(baseline[kind].values()), 1e-12) for kind, runs in mine.items()]
    return float(np.mean(ratios))


def write_pooled(out: Path, rows: Sequence[Row]) -> None:
    """`pooled.json` beside `results.json`."""
    write_json(out / POOLED, [asdict(each) for each in pool(rows)])
