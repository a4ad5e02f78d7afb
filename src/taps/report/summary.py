"""Rows of results, averaged over seeds, for the table `taps eval` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taps.evaluate.results import BASELINE, method_rank


@dataclass(frozen=True)
class Cell:
    """One method on one data set, mean over seeds.

    Attributes:
        dataset: Its name.
        method: As tables call it.
        seeds: How many runs.
        images: Predicted images of one run, at most.
        top1: Accuracy.
        gain: Its difference to zero-shot over the seeds both have; None where there is none.
        rate: Share of images that were asked about.
        ms: Median time of an image.
    """

    dataset: str
    method: str
    seeds: int
    images: int
    top1: float
    gain: float | None
    rate: float
    ms: float


def by_method(rows: Sequence[dict[str, Any]], baseline: str = BASELINE) -> list[Cell]:
    """One cell for each data set and method, baselines first."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["method"]), []).append(row)
    cells = []
    for (dataset, method), found in groups.items():
        base = {row["seed"]: row["top1"] for row in groups.get((dataset, baseline), [])}
        gains = [row["top1"] - base[row["seed"]] for row in found if row["seed"] in base]
        cells.append(
            Cell(
                dataset,
                method,
                len(found),
                max(row["n"] for row in found),
                float(np.mean([row["top1"] for row in found])),
                float(np.mean(gains)) if gains and method != baseline else None,
                float(np.mean([row["rate"] for row in found])),
                float(np.median([row["ms_p50"] for row in found])),
            )
        )
    return sorted(cells, key=lambda cell: (cell.dataset, method_rank(cell.method)))
