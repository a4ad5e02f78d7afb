"""The other tables of a report: differences to a baseline, what it took, settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taps.errors import SettingsError
from taps.evaluate.measures import MEASURES, Measure, find_measures
from taps.evaluate.pooled import BASELINE, pool
from taps.evaluate.results import Result, Results, mean_of
from taps.methods.registry import settings as default_settings
from taps.report.scores import ENOUGH, known_measures, number, score
from taps.report.table import Table

TOOK = ("top5", "ece", "rate", "ms_p50", "ms_p95", "peak_mem_mb")


def difference_table(results: Results, baseline: str = BASELINE) -> Table:
    """Every method against the baseline, on the same images in the same order."""
    rows = []
    for dataset in results.datasets:
        for method in results.methods_of(dataset):
            pair = None if method == baseline else results.paired(dataset, method, baseline)
            if pair is None:
                continue
            wide = pair.half is None or pair.seeds < ENOUGH
            over_seeds = "" if wide else f"± {100 * (pair.half or 0.0):.2f}"
            rows.append(
                (
                    dataset,
                    method,
                    f"{100 * pair.difference:+z.2f}",
                    over_seeds,
                    f"{100 * pair.low:+z.2f} to {100 * pair.high:+z.2f}",
                    f"{pair.gained:,} / {pair.lost:,}",
                    "< 0.0001" if pair.p < 1e-4 else f"{pair.p:.4f}",
                    str(pair.seeds),
                )
            )
    notes = (
        "seeds ±: 95 % t-interval of the difference over seeds. images: 95 % bootstrap interval over images.",
        "gained / lost: images that only the method, only the baseline got right, over all seeds. "
        "p: McNemar's exact test, the largest of the seeds; many rows are many tests, uncorrected.",
    )
    columns = ("data set", "method", "points", "seeds ±", "images", "gained / lost", "p", "seeds")
    return Table(f"Difference to {baseline}, points of top-1 accuracy", columns, tuple(rows), notes, left=2)


def detail_table(results: Results, measures: Sequence[Measure] = ()) -> Table:
    """What it took: labels, memory, time, and any other measure.

    Args:
        results: Of an evaluation.
        measures: Columns; those that no run has are left out.
    """
    known = known_measures(results)
    wanted = [measure for measure in measures or find_measures(TOOK) if measure in known]
    rows = []
    for dataset in results.datasets:
        for method in results.methods_of(dataset):
            found = results.of(dataset, method)
            rows.append(
                (
                    dataset,
                    method,
                    str(len(found)),
                    *(number(measure, score(found, measure)) for measure in wanted),
                    f"{np.mean([result.seen.asked.sum() for result in found]):.0f}",
                    _buffer(found),
                    f"{sum(result.row['broken'] for result in found)}",
                )
            )
    columns = ("data set", "method", "seeds", *(m.heading for m in wanted), "asked", "buffer", "broken")
    notes = [
        " ".join(f"{measure.title}: {measure.said}" for measure in wanted),
        "Means over seeds, of times medians; runs side by side slow each other down. "
        "buffer: labelled images kept at the end. broken: images that could not be read.",
        *never_filled(results),
    ]
    return Table("What each run took", columns, tuple(rows), tuple(notes), left=2)


def _buffer(runs: Sequence[Result]) -> str:
    capacity = runs[0].spec["settings"].get("buffer")
    if not any(result.rate for result in runs):
        return ""
    fill = f"{mean_of(runs, 'buffer_fill'):.0f}"
    return f"{fill} of {capacity}" if capacity else fill


def never_filled(results: Results) -> list[str]:
    """Sentences about memories that never had to choose what to throw away."""
    slack = sorted(
        {
            dataset
            for (dataset, _), runs in results.results.items()
            if any(result.rate for result in runs) and not any(result.row["buffer_full"] for result in runs)
        }
    )
    if not slack:
        return []
    return [f"The buffer never filled on {', '.join(slack)}: how it evicts cannot matter there."]


def corruption_table(results: Results) -> Table:
    """Mean corruption error of each method on each set that was seen through all 15 after ImageNet-C."""
    finished = [run.row for runs in results.results.values() for run in runs]
    found = {(each.dataset, each.method): each.measures for each in pool(finished)}
    mce = {key: measures["mce"] for key, measures in found.items() if "mce" in measures}
    sets = list(dict.fromkeys(dataset for dataset, _ in mce))
    measure = MEASURES["mce"]
    rows = [
        (m, *(number(measure, mce.get((dataset, m))) for dataset in sets)) for m in results.methods if sets
    ]
    return Table(
        f"{measure.heading} (mean corruption error)", ("method", *sets), tuple(rows), (measure.said,)
    )


def settings_table(results: Results) -> Table:
    """What each method was run with: the settings given to it, and the defaults of all others."""
    rows = []
    for method in results.methods:
        specs = [run.spec for dataset in results.datasets for run in results.of(dataset, method)]
        values = [_settings(spec) for spec in specs]
        names = dict.fromkeys(name for value in values for name in value)
        told = {name: _several([value.get(name) for value in values]) for name in names}
        views = told.pop("views", "")
        given = {name for spec in specs for name in spec["settings"]}
        ours = ", ".join(f"{name}={told[name]}" for name in told if name in given)
        rest = ", ".join(f"{name}={told[name]}" for name in told if name not in given)
        rows.append((method, views, ours, rest))
    first = next(iter(results.results.values()))[0].spec
    notes = [f"Model {results.model['name']}."]
    notes += [
        f"{name.capitalize()} of the annotator: {first[name]}." for name in ("noise", "delay") if first[name]
    ]
    specs = [run.spec for runs in results.results.values() for run in runs]
    unknown = sorted({spec["method"] for spec in specs if _defaults(spec["method"]) is None})
    if unknown:
        notes.append(f"The defaults of {', '.join(unknown)} are those of a plugin; name it with --plugin.")
    columns = ("method", "views", "given", "by default")
    return Table("Settings", columns, tuple(rows), tuple(notes), left=4)


def _settings(spec: dict[str, Any]) -> dict[str, Any]:
    """All settings of a run; of a method that is not known here only those that were given."""
    return {**(_defaults(spec["method"]) or {}), **spec["settings"]}


def _defaults(method: str) -> dict[str, Any] | None:
    try:
        return default_settings(method)
    except SettingsError:
        return None


def _several(values: Sequence[Any]) -> str:
    """What runs have in common, or all of it."""
    return " or ".join(dict.fromkeys(map(str, values)))
