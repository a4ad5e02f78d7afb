"""Rows of results by method, for the table `taps eval` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taps.evaluate.results import BASELINE, method_rank


@dataclass(frozen=True)
class Cell:
    """One method on one data set.

    Attributes:
        dataset: Its name.
        method: As tables call it.
        seeds: How many runs.
        images: Predicted images of one run, at most.
        gain: Difference of its top-1 to zero-shot's over the seeds both have; None where there is none.
    """

    dataset: str
    method: str
    seeds: int
    images: int
    gain: float | None


def by_method(rows: Sequence[dict[str, Any]], baseline: str = BASELINE) -> list[Cell]:
    """One cell for each data set and method, baselines first."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["method"]), []).append(row)
    cells = []
    for (dataset, method), found in groups.items():
        base = {row["seed"]: row["top1"] for row in groups.get((dataset, baseline), [])}
        gains = [row["top1"] - base[row["seed"]] for row in found if row["seed"] in base]
        gain = float(np.mean(gains)) if gains and method != baseline else None
        cells.append(Cell(dataset, method, len(found), max(row["n"] for row in found), gain))
    return sorted(cells, key=lambda cell: (cell.dataset, method_rank(cell.method)))
