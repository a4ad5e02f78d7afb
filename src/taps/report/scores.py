"""A measure by method and data set: its cells, intervals, means and ranks."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

import numpy as np

from taps.evaluate.measures import MEASURES, Measure, mean, pooled
from taps.evaluate.pooled import BASELINE
from taps.evaluate.results import Result, Results
from taps.evaluate.statistics import t_interval
from taps.report.published import is_papers_model, published, published_accuracy
from taps.report.ranks import Ranking
from taps.report.table import Cell, Table

ENOUGH = 3  # seeds for an interval: that of two has the factor 12.7 and says nothing
FEW = (
    "No interval is shown for fewer than three seeds: that of two is wider than anything it could tell "
    "apart. Give --seeds 1,2,3 or more."
)
TOP1 = MEASURES["top1"]


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and half-width of the 95 % t-interval; no half-width for fewer than three values."""
    middle, half = t_interval(values)
    return middle, half if len(values) >= ENOUGH else None


def values_of(runs: Sequence[Result], measure: Measure) -> list[float]:
    """The measure of every run; none where one of them does not have it."""
    name = measure.of or measure.name
    values = [run.row.get("measures", run.row).get(name) for run in runs]
    return [] if None in values else values


def score(runs: Sequence[Result], measure: Measure) -> float | None:
    """One number for the runs of a method on a data set."""
    return pooled(measure, [run.row for run in runs])


def known_measures(results: Results) -> list[Measure]:
    """Those that some method has on some data set."""
    every = results.results.values()
    return [
        measure for measure in MEASURES.values() if any(score(runs, measure) is not None for runs in every)
    ]


def number(measure: Measure, value: float | None, half: float | None = None, link: str = "") -> str:
    """A cell of a measure, with its interval."""
    if value is None:
        return "–"
    scale = measure.scale
    text = measure.text(value) if half is None else f"{measure.text(value)} ± {measure.text(half)}"
    return Cell(text, value=scale * value, half=None if half is None else scale * half, link=link)


def score_table(
    results: Results,
    measure: Measure = TOP1,
    baseline: str = BASELINE,
    *,
    linked: bool = False,
    beside: bool = True,
) -> Table:
    """A measure by method and data set, the mean over data sets and its difference to the baseline.

    Args:
        results: Of an evaluation.
        measure: Which.
        baseline: The method that the last column but one is a difference to.
        linked: Whether its cells link to the pages about their runs.
        beside: Whether the paper's numbers stand beside ours where they can.
    """
    datasets, several = results.datasets, len(results.datasets) > 1
    rows: list[tuple[str, ...]] = []
    printed: set[int] = set()
    notes = [_length_note(results)]
    for method in results.methods:
        cells = [_score_cell(results, dataset, method, measure, linked) for dataset in datasets]
        over_sets = [number(measure, mean_over_sets(results, method, measure))] if several else []
        rows.append(
            (method, *cells, *over_sets, _gain(results, method, baseline, measure), _rate(results, method))
        )
        theirs = _published_row(results, method, several) if beside and measure is TOP1 else None
        if theirs is not None:
            printed.add(len(rows))
            rows.append(theirs)
            notes += [published()["notes"][method]] if method in published()["notes"] else []
    orders = [len(runs) for runs in results.results.values()]
    notes += [FEW] if min(orders) < ENOUGH else []
    return Table(
        _title(measure, max(orders)),
        ("method", *datasets, *(["mean"] if several else []), f"to {baseline}", "asked %"),
        _with_places(rows, dict.fromkeys(range(1, len(datasets) + 1 + several), measure), printed),
        tuple(notes),
        published=frozenset(printed),
    )


def _title(measure: Measure, orders: int) -> str:
    name = f"{measure.title[0].upper()}{measure.title[1:]}{' accuracy' if measure is TOP1 else ''}"
    unit = {"%": ", per cent", "": ""}.get(measure.unit, f", {measure.unit}")
    if measure.pool is mean and orders >= ENOUGH:
        return f"{name}{unit}: mean ± half-width of the 95 % t-interval over seeds"
    return f"{name}{unit}: {measure.pool.__name__.replace('_', ' ')} over seeds"


def overview_table(results: Results, measures: Sequence[Measure]) -> Table:
    """Every measure of every method, mean over data sets."""
    rows = [
        (method, *(number(measure, mean_over_sets(results, method, measure)) for measure in measures))
        for method in results.methods
    ]
    notes = (" ".join(f"{measure.title}: {measure.said}" for measure in measures),)
    marked = _with_places(rows, dict(enumerate(measures, 1)))
    return Table("Means over data sets", ("method", *(each.heading for each in measures)), marked, notes)


def with_ranks(table: Table, ranking: Ranking | None, measure: Measure) -> Table:
    """The best first, with means and mean ranks before the data sets: they are what is looked for."""
    ranks = {} if ranking is None else dict(zip(ranking.methods, ranking.mean_ranks, strict=True))
    last = len(table.columns) - 3  # of the data sets, or their mean

    def place(row: tuple[str, ...]) -> tuple[bool, float]:
        cell = row[last]
        value = cell.value if isinstance(cell, Cell) else None
        return value is None, -measure.sign * (value or 0.0)

    def moved(row: tuple[str, ...], rank: str) -> tuple[str, ...]:
        mean_too = (row[last],) if "mean" in table.columns else ()
        return (row[0], rank, *mean_too, *row[1 : last + 1 - len(mean_too)], *row[last + 1 :])

    rows = []
    for row in sorted(table.rows, key=place):
        rank = Cell(f"{ranks[row[0]]:.2f}", value=ranks[row[0]]) if row[0] in ranks else "–"
        rows.append(moved(row, rank))
    return replace(table, columns=moved(table.columns, "rank"), rows=tuple(rows))


def _score_cell(results: Results, dataset: str, method: str, measure: Measure, linked: bool) -> str:
    values = values_of(results.of(dataset, method), measure)
    if not values:
        return "–"
    half = interval(values)[1] if measure.pool is mean else None
    link = quote(results.pages[dataset, method]) if linked else ""
    return number(measure, measure.pool(values), half, link)


def _gain(results: Results, method: str, baseline: str, measure: Measure) -> str:
    """Difference of the means; methods on a data set have the same seeds, so it is that of pairs."""
    mine, theirs = (mean_over_sets(results, name, measure) for name in (method, baseline))
    if method == baseline or mine is None or theirs is None:
        return ""
    gain = (mine - theirs) * measure.scale
    return Cell(f"{gain:+z,.{measure.digits}f}", value=gain)


def _with_places(
    rows: Sequence[tuple[str, ...]], columns: Mapping[int, Measure], other: Container[int] = ()
) -> tuple[tuple[str, ...], ...]:
    """The best and the second of each column marked, equal ones alike; other rows stay as they are."""
    found = [list(row) for row in rows]
    for column, measure in columns.items():
        cells = {i: row[column] for i, row in enumerate(rows) if i not in other}
        numbers = {i: cell for i, cell in cells.items() if isinstance(cell, Cell) and cell.value is not None}
        shown = {round(cell.value or 0.0, measure.digits) for cell in numbers.values()}
        best = sorted(shown, key=lambda value: -measure.sign * value)
        places = {i: 1 + best.index(round(cell.value or 0.0, measure.digits)) for i, cell in numbers.items()}
        first = list(places.values()).count(1)
        if 2 * first < len(places) or (first, len(places)) == (1, 2):  # else being best is nothing
            for i, cell in numbers.items():
                found[i][column] = cell.placed(places[i])
    return tuple(tuple(row) for row in found)


def mean_over_sets(results: Results, method: str, measure: Measure = TOP1) -> float | None:
    """Mean over data sets; None where one is missing, for such means cannot be compared."""
    scores = [score(results.of(dataset, method), measure) for dataset in results.datasets]
    known = [value for value in scores if value is not None]
    return float(np.mean(known)) if len(known) == len(scores) else None


def _published_row(results: Results, method: str, several: bool) -> tuple[str, ...] | None:
    """The paper's numbers, where the model and the images are the paper's."""
    if not is_papers_model(results.model["name"], results.model["pretrained"]):
        return None
    values = [_printed(results, dataset, method) for dataset in results.datasets]
    known = [value for value in values if value is not None]
    if not known:
        return None
    over_sets = [f"{np.mean(known):.2f}" if len(known) == len(values) else ""] if several else []
    return (f"{method} (paper)", *("" if v is None else f"{v:.2f}" for v in values), *over_sets, "", "")


def _printed(results: Results, dataset: str, method: str) -> float | None:
    """The paper's number, where the images are the paper's."""
    stream = results.stream(dataset)
    return None if stream["corrupt"] else published_accuracy(method, stream["dataset"])


def _rate(results: Results, method: str) -> str:
    rates = [result.rate for dataset in results.datasets for result in results.of(dataset, method)]
    share = 100 * float(np.mean(rates))
    return Cell(f"{share:.1f}" if share else "0", value=share)


def _length_note(results: Results) -> str:
    """How many images stand behind a number, and which."""
    told: dict[str, list[str]] = {}
    for dataset in results.datasets:
        runs = [result for method in results.methods for result in results.of(dataset, method)]
        n, longest = len(runs[0].seen), max(result.whole for result in runs)
        outside = [n - len(result.run) for result in runs]
        text = f"{n:,}"
        if any(result.spec["limit"] is not None for result in runs):
            text += ", the first of each order"
        if longest > n:
            text += f" (some runs have {longest:,}; all are compared on what every run has)"
        if any(outside):
            ends = dict.fromkeys((min(outside), max(outside)))
            text += f", of which {' to '.join(map(str, ends))} are of no class"
        told.setdefault(text, []).append(dataset)
    parts = [text if len(told) == 1 else f"{', '.join(names)}: {text}" for text, names in told.items()]
    seeds = sorted({result.seed for runs in results.results.values() for result in runs})
    left = (
        f" {results.dropped} runs of seeds that not every method has are left out." if results.dropped else ""
    )
    return f"Images a run: {'; '.join(parts)}. Seeds: {', '.join(map(str, seeds))}.{left}"
