"""The page of the paper: each published number beside ours, a figure for each ablation, both propositions."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taps.errors import DataError
from taps.files import write_text
from taps.study.evaluate.results import Result, Results, read_results
from taps.study.paper.parts import PARTS, Part
from taps.study.paper.plan import Plan
from taps.study.report.charts import dotplot
from taps.study.report.document import document
from taps.study.report.published import published
from taps.study.report.table import Cell, Row, Table, html_table
from taps.study.report.tables import interval

PAGE = "paper.html"
MEAN = "mean"
COLUMNS = ("set", "row", "published", "ours", "difference", "to CLIP, published", "to CLIP, ours", "asked %")
OTHER_SETS = (
    "The sets and the model are not the paper's: only means stand side by side, and of those compare what is "
    "gained over CLIP."
)
ALIGNED = ("table3", "figure2d")
SEEN = (
    "Here images are aligned to statistics of the same images before they were corrupted; that favours every "
    "row with alignment."
)


def write_page(out: Path, plan: Plan, title: str) -> Path:
    """Write the page from whatever is finished in the folder."""
    try:
        results = read_results(out)
    except DataError:  # nothing is finished
        results = Results({}, [])
    there = html_table(
        Table("What is there, and what is missing", ("what", "found"), tuple(plan.checked), left=2)
    )
    body = [f"<h1>{html.escape(title)}</h1>", there]
    for name, sets in plan.sets.items():
        body += _ablation(name, results, sets) if PARTS[name].ablation else _table(name, results, sets)
    write_text(out / PAGE, document(title, [*body, *propositions(out)]))
    return out / PAGE


def _table(name: str, results: Results, sets: Sequence[str]) -> list[str]:
    return [f"<h2>{html.escape(PARTS[name].title)}</h2>", html_table(beside(name, results, sets))]


def beside(name: str, results: Results, sets: Sequence[str]) -> Table:
    """A table of the paper with ours beside it: for the mean and for each set a row a method."""
    part, printed = PARTS[name], published()["tables"].get(name, {"datasets": [], "rows": {}})
    own = set(sets) <= {*part.sets}
    places = list(sets) if own and len(sets) == 1 else [MEAN, *sets]
    rows = [
        _row(place, label, results, list(sets) if place == MEAN else [place], printed)
        for place in places
        for label in part.labels
    ]
    notes = [published()["notes"][label] for label in part.labels if label in published()["notes"]]
    return Table(
        "Top-1 accuracy, per cent, with the half-width of the 95 % t-interval over orders (three at least)",
        COLUMNS,
        tuple(rows),
        (*notes, *([] if own else [OTHER_SETS]), *([SEEN] if name in ALIGNED and not own else [])),
        left=2,
    )


def _row(place: str, label: str, results: Results, sets: list[str], printed: dict[str, Any]) -> Row:
    theirs, base = (_printed(printed, row, place) for row in (label, "zero_shot"))
    mine, clip = by_seed(results, label, sets), by_seed(results, "zero_shot", sets)
    failed = any(run["method"] == label and run["dataset"] in sets for run in results.unfinished)
    state = "failed" if failed else "–" if sets else "no set"
    gained = None if theirs is None or base is None else theirs - base
    asked = [result.rate for name in sets for result in results.of(name, label)]
    both = sorted(mine.keys() & clip.keys())
    return (
        place,
        label,
        _number(theirs),
        _number(*interval(list(mine.values()))) if mine else state,
        _number(interval(list(mine.values()))[0] - theirs, sign="+") if mine and theirs is not None else "–",
        _number(gained, sign="+"),
        _number(*interval([mine[seed] - clip[seed] for seed in both]), sign="+") if both else "–",
        f"{100 * np.mean(asked):.1f}" if any(asked) else "",
    )


def _number(value: float | None, half: float | None = None, sign: str = "") -> str:
    if value is None:
        return "–"
    return Cell(f"{value:{sign}z.2f}" + ("" if half is None else f" ± {half:.2f}"), value=value, half=half)


def _printed(printed: dict[str, Any], label: str, place: str) -> float | None:
    """The printed number; `source` stands for MaPLe, whose prompts it is. Means are over those printed."""
    row = printed["rows"].get("maple" if label == "source" else label)
    if row is None:
        return None
    if place == MEAN:
        return float(np.mean([value for value in row if value is not None]))
    names = list(printed["datasets"])
    found: float | None = row[names.index(place)] if place in names else None
    return found


def by_seed(results: Results, label: str, sets: Sequence[str]) -> dict[int, float]:
    """Mean accuracy over the sets, of each seed that all of them have."""
    runs: list[list[Result]] = [results.of(name, label) for name in sets]
    if not runs or not all(runs):
        return {}
    found = [{result.seed: 100 * result.top1 for result in those} for those in runs]
    seeds = set.intersection(*(set(each) for each in found))
    return {seed: float(np.mean([each[seed] for each in found])) for seed in sorted(seeds)}


def _ablation(name: str, results: Results, sets: Sequence[str]) -> list[str]:
    part = PARTS[name]
    figure, table = draw(part, results, sets), html_table(beside(name, results, sets))
    notes = [f"<p class=note>{html.escape(line)}</p>" for line in cannot_show(part, results, sets)]
    return [f"<h2>{html.escape(part.title)}</h2>", figure, table, *notes]


def draw(part: Part, results: Results, sets: Sequence[str]) -> str:
    """Mean over the sets of each variant; behind it every set, moved so that its mean is that of all."""
    means = {label: by_seed(results, label, sets) for label in part.labels}
    drawn = [label for label, values in means.items() if values]
    if not drawn:
        return ""
    rows = [(label, *interval(list(means[label].values()))) for label in drawn]
    middle = float(np.mean([value for _, value, _ in rows]))
    lines = [
        [float(np.mean([*by_seed(results, label, [name]).values()])) for label in drawn] for name in sets
    ]
    faint = [[value - float(np.mean(line)) + middle for value in line] for line in lines]
    title = f"mean of {len(sets)} sets; faint: each of them, moved to the same mean"
    return dotplot(rows, x_title="top-1 accuracy, %", title=title, faint=faint if len(sets) > 1 else ())


def cannot_show(part: Part, results: Results, sets: Sequence[str]) -> list[str]:
    """A sentence for each set on which the ablation is blind, whatever its numbers are."""
    said = []
    for name in sets:
        runs = [run for label in part.labels for run in results.of(name, label)]
        if runs and not any(run.row["answered"] for run in runs):
            said.append(f"{name}: no question was asked, so nothing can be seen here.")
        elif part.evicts and runs and not any(run.row["buffer_full"] for run in runs):
            most = max(run.row["buffer_fill"] for run in runs)
            said.append(f"{name}: the buffer never filled ({most} labels at most), so nothing was evicted.")
    return said


def propositions(out: Path) -> list[str]:
    """The tables of the simulation, where it was run."""
    path = out / "theory" / "simulate.json"
    if not path.is_file():
        return []
    tables = json.loads(path.read_text(encoding="utf-8"))["tables"]
    shown = ["<h2>Propositions 1 and 2, simulated</h2>"]
    for name, rows in tables.items():
        cells = tuple(tuple(_plain(value) for value in row.values()) for row in rows)
        shown.append(html_table(Table(name, tuple(rows[0]), cells)))
    return shown


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
