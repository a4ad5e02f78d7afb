"""Rows of results in groups: by kind of class texts, and pooled over the runs of a method on a data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taps.errors import SettingsError
from taps.methods.registry import find_method
from taps.model.prompts.texts import list_templates
from taps.study.evaluate.measures import MEASURES

POOLED = "pooled.json"
BASELINE = "zero_shot"
ONE, RICHER = "one template", "richer texts"
BLOCKS = (ONE, RICHER)
"""Tables have two blocks that are never mixed: one template a class, and richer texts."""

Row = Mapping[str, Any]


def block_of(method: str, settings: Mapping[str, Any]) -> str:
    """The block of a run. A learned context takes the place of hand-written texts, whatever these are.

    >>> block_of("zero_shot", {"template": "imagenet80"}), block_of("tpt", {"template": "imagenet80"})
    ('richer texts', 'one template')
    """
    if _is_learned(method) or settings.get("prompts") is not None:
        return ONE
    several = settings.get("texts") is not None or len(list_templates(settings.get("template"))) > 1
    return RICHER if several else ONE


def _is_learned(method: str) -> bool:
    """Whether a method has a learned context; False for a method that is not installed here."""
    try:
        return find_method(method).learned
    except SettingsError:
        return False


def split_rows(rows: Iterable[Row]) -> dict[str, list[dict[str, Any]]]:
    """Rows of results by block, without empty blocks."""
    found: dict[str, list[dict[str, Any]]] = {block: [] for block in BLOCKS}
    for row in rows:
        found[row["texts"]].append(dict(row))
    return {block: those for block, those in found.items() if those}


def learned_beside_texts(methods: Iterable[str]) -> str:
    """A sentence about the methods that take no richer texts; "" where all do."""
    learned = [name for name in dict.fromkeys(methods) if _is_learned(name)]
    why = f"A learned context takes their place: such methods stand in the table of {ONE}."
    return f"Without the texts given: {', '.join(learned)}. {why}" if learned else ""


@dataclass(frozen=True)
class Pooled:
    """One method on one data set.

    Attributes:
        seeds: How many orders were pooled.
        measures: Name → number, pooled as `taps.study.evaluate.measures` says.
        images: Predicted images of one order, at most.
        gain: Difference of its top-1 to zero-shot's over the orders both have; None where zero-shot has no
            run with the same kind of class texts.
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
        values = {name: measure.pooled(runs) for name, measure in MEASURES.items()}
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
    return found
