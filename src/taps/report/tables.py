"""The tables of a report."""

from __future__ import annotations

import numpy as np

from taps.evaluate.results import BASELINE, Results, mean_of
from taps.evaluate.statistics import t_interval
from taps.report.published import is_papers_model, published, published_accuracy
from taps.report.table import Table


def accuracy_table(results: Results, baseline: str = BASELINE) -> Table:
    """Accuracy by method and data set, the mean over data sets and its difference to the baseline."""
    datasets = results.datasets
    rows: list[tuple[str, ...]] = []
    printed: set[int] = set()
    beside = is_papers_model(results.model["name"], results.model["pretrained"])
    odd: list[str] = []
    several = len(datasets) > 1
    for method in results.methods:
        cells = [_accuracy(results, dataset, method) for dataset in datasets]
        mean = [_shown(_mean_over_sets(results, method))] if several else []
        rows.append((method, *cells, *mean, _gain(results, method, baseline), _rate(results, method)))
        values = [_printed(results, dataset, method) for dataset in datasets] if beside else []
        if any(value is not None for value in values):
            known = [value / 100 for value in values if value is not None]
            mean = [_shown(float(np.mean(known)) if len(known) == len(values) else None)] if several else []
            printed.add(len(rows))
            shown = ["" if value is None else f"{value:.2f}" for value in values]
            rows.append((f"{method} (paper)", *shown, *mean, "", ""))
            if method in published()["notes"]:
                odd.append(published()["notes"][method])
    notes = [_length_note(results), *odd]
    return Table(
        "Top-1 accuracy, per cent: mean ± half-width of the 95 % t-interval over seeds",
        ("method", *datasets, *(["mean"] if several else []), f"to {baseline}", "asked %"),
        tuple(rows),
        tuple(note for note in notes if note),
        published=frozenset(printed),
    )


def _accuracy(results: Results, dataset: str, method: str) -> str:
    found = results.of(dataset, method)
    if not found:
        return "–"
    mean, half = t_interval([100 * result.top1 for result in found])
    return f"{mean:.2f}" if half is None else f"{mean:.2f} ± {half:.2f}"


def _mean_over_sets(results: Results, method: str) -> float | None:
    """Mean over data sets; None where one is missing, for such means cannot be compared."""
    found = [results.of(dataset, method) for dataset in results.datasets]
    if not all(found):
        return None
    return float(np.mean([np.mean([result.top1 for result in runs]) for runs in found]))


def _shown(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"


def _gain(results: Results, method: str, baseline: str) -> str:
    """Mean over data sets of the paired differences, so that a missing seed cannot tilt it."""
    pairs = [results.paired(dataset, method, baseline) for dataset in results.datasets]
    known = [pair.difference for pair in pairs if pair is not None]
    if method == baseline or len(known) < len(pairs):
        return ""
    return f"{100 * float(np.mean(known)):+.2f}"


def _printed(results: Results, dataset: str, method: str) -> float | None:
    """The paper's number, where the images are the paper's."""
    stream = results.stream(dataset)
    return None if stream["corrupt"] else published_accuracy(method, stream["dataset"])


def _rate(results: Results, method: str) -> str:
    rates = [result.rate for dataset in results.datasets for result in results.of(dataset, method)]
    return f"{100 * float(np.mean(rates)):.1f}" if any(rates) else "0"


def _length_note(results: Results) -> str:
    """How many images stand behind a number, and which."""
    told: dict[str, list[str]] = {}
    for dataset in results.datasets:
        runs = [result for method in results.methods for result in results.of(dataset, method)]
        n, longest = len(runs[0].run), max(result.whole for result in runs)
        text = f"{n:,}"
        if any(result.spec["limit"] is not None for result in runs):
            text += ", the first of each order"
        if longest > n:
            text += f" (some runs have {longest:,}; all are compared on what every run has)"
        told.setdefault(text, []).append(dataset)
    parts = [text if len(told) == 1 else f"{', '.join(names)}: {text}" for text, names in told.items()]
    seeds = sorted({result.seed for runs in results.results.values() for result in runs})
    left = (
        f" {results.dropped} runs of seeds that not every method has are left out." if results.dropped else ""
    )
    return f"Images a run: {'; '.join(parts)}. Seeds: {', '.join(map(str, seeds))}.{left}"


def difference_table(results: Results, baseline: str = BASELINE) -> Table:
    """Every method against the baseline, on the same images in the same order."""
    rows = []
    for dataset in results.datasets:
        for method in results.methods_of(dataset):
            pair = None if method == baseline else results.paired(dataset, method, baseline)
            if pair is None:
                continue
            over_seeds = "" if pair.half is None else f"± {100 * pair.half:.2f}"
            rows.append(
                (
                    dataset,
                    method,
                    f"{100 * pair.difference:+.2f}",
                    over_seeds,
                    f"{100 * pair.low:+.2f} to {100 * pair.high:+.2f}",
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


def detail_table(results: Results) -> Table:
    """What it took: labels, memory, time."""
    rows = []
    for dataset in results.datasets:
        for method in results.methods_of(dataset):
            found = results.of(dataset, method)
            capacity = found[0].spec["settings"].get("buffer")
            fill = f"{mean_of(found, 'buffer_fill'):.0f}"
            asks = any(result.rate for result in found)
            rows.append(
                (
                    dataset,
                    method,
                    str(len(found)),
                    f"{100 * float(np.mean([result.run.top5.mean() for result in found])):.2f}",
                    f"{100 * float(np.mean([result.ece for result in found])):.2f}",
                    f"{np.mean([result.run.asked.sum() for result in found]):.0f}" if asks else "0",
                    f"{100 * float(np.mean([result.rate for result in found])):.2f}" if asks else "0",
                    (f"{fill} of {capacity}" if capacity else fill) if asks else "",
                    f"{mean_of(found, 'ms_p50'):.1f}",
                    f"{mean_of(found, 'ms_p95'):.1f}",
                    f"{mean_of(found, 'peak_mem_mb'):,.0f}",
                    f"{sum(result.row['broken'] for result in found)}",
                )
            )
    columns = (
        *("data set", "method", "seeds", "top-5 %", "ECE %", "asked", "asked %", "buffer"),
        *("ms p50", "ms p95", "memory MB", "broken"),
    )
    notes = [
        "Means over seeds. ECE: expected calibration error, 15 bins. Times: one image, pixels to prediction; "
        "runs side by side slow each other down. buffer: labelled images kept at the end.",
        *never_filled(results),
    ]
    return Table("What each run took", columns, tuple(rows), tuple(notes), left=2)


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
