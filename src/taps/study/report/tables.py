"""The tables of reports: a measure by method and data set, differences, costs, corruptions, settings."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from taps.errors import SettingsError
from taps.methods.registry import settings as default_settings
from taps.study.evaluate.measures import MEASURES, Measure, find_measures, mean
from taps.study.evaluate.pooled import BASELINE
from taps.study.evaluate.results import Result, Results, mean_of
from taps.study.evaluate.statistics import t_interval
from taps.study.report.published import is_papers_model, published, published_accuracy
from taps.study.report.table import Cell, Row, Table

LEAST_SEEDS = 3  # seeds for an interval
FEW = (
    "No interval is shown for fewer than three seeds: with two it would be ± 12.7 standard errors. "
    "Give --seeds 1,2,3 or more."
)
TOP1 = MEASURES["top1"]
TOOK = ("top5", "ece", "rate", "ms_p50", "ms_p95", "peak_mem_mb")


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and half-width of the 95 % t-interval; no half-width for fewer than three values."""
    middle, half = t_interval(values)
    return middle, half if len(values) >= LEAST_SEEDS else None


def values_of(runs: Sequence[Result], measure: Measure) -> list[float]:
    """The measure of every run; none where one of them does not have it."""
    return measure.values([run.row for run in runs])


def score(runs: Sequence[Result], measure: Measure) -> float | None:
    """One number for the runs of a method on a data set."""
    return measure.pooled([run.row for run in runs])


def mean_over_sets(results: Results, method: str, measure: Measure = TOP1) -> float | None:
    """Mean over data sets; None where one is missing, for such means cannot be compared."""
    scores = [score(results.of(dataset, method), measure) for dataset in results.datasets]
    known = [value for value in scores if value is not None]
    return float(np.mean(known)) if len(known) == len(scores) else None


def known_measures(results: Results) -> list[Measure]:
    """The measures that some method has on some data set."""
    every = results.results.values()
    return [measure for measure in MEASURES.values() if any(values_of(runs, measure) for runs in every)]


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
    best_first: bool = False,
) -> Table:
    """A measure by method and data set, the mean over data sets and its difference to the baseline.

    With `linked` cells link to the pages about their runs. With `beside` the paper's numbers stand beside
    ours where model and images are the paper's. With `best_first` methods come in the order of their
    means, which stand before the data sets.
    """
    datasets, several = results.datasets, len(results.datasets) > 1
    means = {method: mean_over_sets(results, method, measure) for method in results.methods}
    ordered = results.methods
    if best_first:
        ordered = sorted(means, key=lambda m: (means[m] is None, -measure.sign * (means[m] or 0.0)))

    def in_order(name: str, scores: list[str], mean: str, *rest: str) -> Row:
        over_sets = [mean] if several else []
        return (name, *([*over_sets, *scores] if best_first else [*scores, *over_sets]), *rest)

    rows: list[Row] = []
    printed: set[int] = set()
    notes = [_length_note(results)]
    for method in ordered:
        scores = [_score_cell(results, dataset, method, measure, linked) for dataset in datasets]
        rest = _gain(means, method, baseline, measure), _rate(results, method)
        rows.append(in_order(method, scores, number(measure, means[method]), *rest))
        theirs = _published_row(results, method, several) if beside and measure is TOP1 else None
        if theirs is not None:
            printed.add(len(rows))
            rows.append(theirs)
            notes += [published()["notes"][method]] if method in published()["notes"] else []
    for method in results.failed:
        rows.append(in_order(method, ["failed"] * len(datasets), "–", "", ""))
    orders = [len(runs) for runs in results.results.values()]
    notes += [FEW] if min(orders) < LEAST_SEEDS else []
    measured = range(1, 1 + len(datasets) + several)
    return Table(
        _title(measure, max(orders)),
        in_order("method", datasets, "mean", f"to {baseline}", "asked %"),
        _with_places(rows, dict.fromkeys(measured, measure), printed),
        tuple(notes),
        published=frozenset(printed),
    )


def _title(measure: Measure, orders: int) -> str:
    name = f"{measure.title[0].upper()}{measure.title[1:]}{' accuracy' if measure is TOP1 else ''}"
    unit = {"%": ", per cent", "": ""}.get(measure.unit, f", {measure.unit}")
    if measure.pool is mean and orders >= LEAST_SEEDS:
        return f"{name}{unit}: mean ± half-width of the 95 % t-interval over seeds"
    return f"{name}{unit}: {measure.pool.__name__.replace('_', ' ')} over seeds"


def _score_cell(results: Results, dataset: str, method: str, measure: Measure, linked: bool) -> str:
    values = values_of(results.of(dataset, method), measure)
    if not values:
        lost = any((run["dataset"], run["method"]) == (dataset, method) for run in results.unfinished)
        return "failed" if lost else "–"
    half = interval(values)[1] if measure.pool is mean else None
    link = quote(results.pages[dataset, method]) if linked else ""
    return number(measure, measure.pool(values), half, link)


def _gain(means: Mapping[str, float | None], method: str, baseline: str, measure: Measure) -> str:
    """Difference of the means; methods on a data set have the same seeds, so it is that of pairs."""
    mine, theirs = means[method], means.get(baseline)
    if method == baseline or mine is None or theirs is None:
        return ""
    gain = (mine - theirs) * measure.scale
    return Cell(f"{gain:+z,.{measure.digits}f}", value=gain)


def _rate(results: Results, method: str) -> str:
    rates = [result.rate for dataset in results.datasets for result in results.of(dataset, method)]
    share = 100 * float(np.mean(rates))
    return Cell(f"{share:.1f}" if share else "0", value=share)


def _published_row(results: Results, method: str, several: bool) -> Row | None:
    """The paper's numbers, where the model and the images are the paper's."""
    if not is_papers_model(results.model["name"], results.model["pretrained"]):
        return None
    streams = [results.stream(dataset) for dataset in results.datasets]
    values = [None if s["corrupt"] else published_accuracy(method, s["dataset"]) for s in streams]
    known = [value for value in values if value is not None]
    if not known:
        return None
    over_sets = [f"{np.mean(known):.2f}" if len(known) == len(values) else ""] if several else []
    return (f"{method} (paper)", *("" if v is None else f"{v:.2f}" for v in values), *over_sets, "", "")


def _length_note(results: Results) -> str:
    """How many images stand behind a number, and which."""
    by_text: dict[str, list[str]] = {}
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
        by_text.setdefault(text, []).append(dataset)
    parts = [text if len(by_text) == 1 else f"{', '.join(names)}: {text}" for text, names in by_text.items()]
    seeds = ", ".join(map(str, results.seeds))
    dropped = f" {results.dropped} runs of seeds that not every method has are left out."
    return f"Images a run: {'; '.join(parts)}. Seeds: {seeds}.{dropped if results.dropped else ''}"


def _with_places(
    rows: Sequence[Row], columns: Mapping[int, Measure], other: Container[int] = ()
) -> tuple[Row, ...]:
    """The best and the second of each column marked, equal ones alike; other rows stay as they are."""
    marked = [list(row) for row in rows]
    for column, measure in columns.items():
        cells = {i: row[column] for i, row in enumerate(rows) if i not in other}
        numbers = {i: cell for i, cell in cells.items() if isinstance(cell, Cell) and cell.value is not None}
        shown = {i: measure.sign * round(cell.value or 0.0, measure.digits) for i, cell in numbers.items()}
        best = sorted(set(shown.values()), reverse=True)
        first = list(shown.values()).count(best[0]) if best else 0
        if 2 * first < len(shown) or (first, len(shown)) == (1, 2):  # else being best is nothing
            for i, cell in numbers.items():
                marked[i][column] = cell.placed(1 + best.index(shown[i]))
    return tuple(tuple(row) for row in marked)


def overview_table(results: Results, measures: Sequence[Measure]) -> Table:
    """Every measure of every method, mean over data sets."""
    rows = [
        (method, *(number(measure, mean_over_sets(results, method, measure)) for measure in measures))
        for method in results.methods
    ]
    notes = (" ".join(f"{measure.title}: {measure.description}" for measure in measures),)
    marked = _with_places(rows, dict(enumerate(measures, 1)))
    return Table("Means over data sets", ("method", *(each.heading for each in measures)), marked, notes)


def difference_table(results: Results, baseline: str = BASELINE) -> Table:
    """Every method against the baseline, on the same images in the same order."""
    rows = []
    for dataset, method in results.cells:
        pair = None if method == baseline else results.paired(dataset, method, baseline)
        if pair is None:
            continue
        over_seeds = f"± {100 * pair.half:.2f}" if pair.half is not None and pair.seeds >= LEAST_SEEDS else ""
        row = (
            f"{100 * pair.difference:+z.2f}",
            over_seeds,
            f"{100 * pair.low:+z.2f} to {100 * pair.high:+z.2f}",
            f"{pair.gained:,} / {pair.lost:,}",
            "< 0.0001" if pair.p < 1e-4 else f"{pair.p:.4f}",
            str(pair.seeds),
        )
        rows.append((dataset, method, *row))
    notes = (
        "seeds ±: 95 % t-interval of the difference over seeds. images: 95 % bootstrap interval over images.",
        "gained / lost: images that only the method, only the baseline got right, over all seeds. "
        "p: McNemar's exact test, the largest of the seeds; many rows are many tests, uncorrected.",
    )
    columns = ("data set", "method", "points", "seeds ±", "images", "gained / lost", "p", "seeds")
    return Table(f"Difference to {baseline}, points of top-1 accuracy", columns, tuple(rows), notes, left=2)


def detail_table(results: Results, measures: Sequence[Measure] = ()) -> Table:
    """What each run took: labels, memory, time, and those of the measures that some run has."""
    known = known_measures(results)
    wanted = [measure for measure in measures or find_measures(TOOK) if measure in known]
    rows = []
    for dataset, method in results.cells:
        runs = results.of(dataset, method)
        numbers = [number(measure, score(runs, measure)) for measure in wanted]
        asked = f"{np.mean([result.seen.asked.sum() for result in runs]):.0f}"
        broken = str(sum(result.row["broken"] for result in runs))
        rows.append((dataset, method, str(len(runs)), *numbers, asked, _buffer(runs), broken))
    columns = ("data set", "method", "seeds", *(m.heading for m in wanted), "asked", "buffer", "broken")
    notes = [
        " ".join(f"{measure.title}: {measure.description}" for measure in wanted),
        "Means over seeds, of times medians; runs side by side slow each other down. "
        "buffer: labelled images kept at the end. broken: images that could not be read.",
    ]
    slack = sorted(
        {
            dataset
            for (dataset, _), runs in results.results.items()
            if any(result.rate for result in runs) and not any(result.row["buffer_full"] for result in runs)
        }
    )
    if slack:
        notes.append(f"The buffer never filled on {', '.join(slack)}: how it evicts cannot matter there.")
    return Table("What each run took", columns, tuple(rows), tuple(notes), left=2)


def _buffer(runs: Sequence[Result]) -> str:
    capacity = runs[0].spec["settings"].get("buffer")
    if not any(result.rate for result in runs):
        return ""
    fill = f"{mean_of(runs, 'buffer_fill'):.0f}"
    return f"{fill} of {capacity}" if capacity else fill


def settings_table(results: Results) -> Table:
    """What each method was run with: the settings given to it, and the defaults of all others."""
    rows = []
    for method in results.methods:
        specs = [run.spec for dataset in results.datasets for run in results.of(dataset, method)]
        values = [{**(_defaults(spec["method"]) or {}), **spec["settings"]} for spec in specs]
        names = dict.fromkeys(name for value in values for name in value)
        # What runs have in common, or every value of it.
        text = {name: " or ".join(dict.fromkeys(str(v.get(name)) for v in values)) for name in names}
        views = text.pop("views", "")
        given = {name for spec in specs for name in spec["settings"]}
        ours = ", ".join(f"{name}={text[name]}" for name in text if name in given)
        rest = ", ".join(f"{name}={text[name]}" for name in text if name not in given)
        rows.append((method, views, ours, rest))
    specs = [run.spec for runs in results.results.values() for run in runs]
    notes = [f"Model {results.model['name']}."]
    for name in ("noise", "delay"):
        notes += [f"{name.capitalize()} of the annotator: {specs[0][name]}."] if specs[0][name] else []
    unknown = sorted({spec["method"] for spec in specs if _defaults(spec["method"]) is None})
    if unknown:
        notes.append(f"The defaults of {', '.join(unknown)} are those of a plugin; name it with --plugin.")
    columns = ("method", "views", "given", "by default")
    return Table("Settings", columns, tuple(rows), tuple(notes), left=4)


def _defaults(method: str) -> dict[str, Any] | None:
    try:
        return default_settings(method)
    except SettingsError:
        return None
