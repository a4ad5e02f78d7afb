"""The pictures of a report, one function each. Every one says in its title what is shown on which data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from taps.evaluate.metrics import reliability
from taps.evaluate.results import Result, Results, mean_of
from taps.report.figure import MARKERS, figure, pyplot, shown
from taps.report.palette import BLACK, BLUE, FAINT, GREY, RED, colours

Floats = NDArray[np.float64]
SETTLED = 20  # running means of fewer images than this are noise and would squeeze the rest of the picture
BARS = 40


def draw_all(results: Results, folder: Path) -> dict[str, list[Path]]:
    """Every picture that the results allow, by data set."""
    pyplot()  # a missing library is said before anything is written
    kinds: list[Callable[[Results, str, Path], bool]] = [
        accuracy_over_time,
        accuracy_against_labels,
        entropy_and_threshold,
        query_rate,
        buffer_classes,
        reliability_diagram,
        accuracy_and_latency,
    ]
    drawn: dict[str, list[Path]] = {}
    for dataset in results.datasets:
        place = next(iter(results.of(dataset, results.methods_of(dataset)[0]))).folder.parent.parent.name
        for draw in kinds:
            path = folder / place / f"{draw.__name__}.png"
            if draw(results, dataset, path):
                drawn.setdefault(dataset, []).append(path)
    return drawn


def running(values: Floats) -> Floats:
    """Mean of everything so far, at every image."""
    return np.cumsum(values) / np.arange(1, len(values) + 1)


def _thin(n: int, points: int = 800) -> NDArray[np.int64]:
    """Places to draw: a picture 800 pixels wide shows no more."""
    start = min(SETTLED, n) - 1
    return np.unique(np.linspace(start, n - 1, points).astype(np.int64))


def _asking(results: Results, dataset: str) -> list[str]:
    return [m for m in results.methods_of(dataset) if any(result.rate for result in results.of(dataset, m))]


def _seeds(found: list[Result]) -> str:
    return f"{len(found)} seeds" if len(found) > 1 else f"seed {found[0].seed}"


def accuracy_over_time(results: Results, dataset: str, path: Path) -> bool:
    """Running accuracy: mean over seeds, shaded from the lowest to the highest."""
    methods = results.methods_of(dataset)
    colour = colours(results.methods)
    title = f"Accuracy over the stream · {dataset} · {_seeds(results.of(dataset, methods[0]))}"
    if len(shown(methods)) < len(methods):
        title += f" · {len(shown(methods))} of {len(methods)} methods"
    with figure(path, title, "images seen", "running top-1 accuracy (%)") as axes:
        for method in shown(methods):
            curves = np.stack([100 * running(result.run.correct) for result in results.of(dataset, method)])
            at = _thin(curves.shape[1])
            axes.plot(at + 1, curves.mean(0)[at], color=colour[method], label=method, linewidth=1.8)
            if len(curves) > 1:
                axes.fill_between(
                    at + 1,
                    curves.min(0)[at],
                    curves.max(0)[at],
                    color=colour[method],
                    alpha=0.12,
                    linewidth=0,
                )
    return True


def accuracy_against_labels(results: Results, dataset: str, path: Path) -> bool:
    """Running accuracy against the labels given so far; methods without labels are level lines."""
    asking = _asking(results, dataset)
    if not asking:
        return False
    colour = colours(results.methods)
    title = f"Accuracy against labels · {dataset}"
    with figure(path, title, "labels given so far", "running top-1 accuracy (%)") as axes:
        for method in (m for m in shown(results.methods_of(dataset)) if m not in asking):
            level = 100 * float(np.mean([result.top1 for result in results.of(dataset, method)]))
            axes.axhline(level, color=colour[method], linestyle="--", linewidth=1.4, label=method)
        for method in asking:
            for place, result in enumerate(results.of(dataset, method)):
                n = len(result.run)
                given = np.bincount([t for t in result.answers if t < n], minlength=n)[:n]
                at = _thin(n)
                axes.plot(
                    np.cumsum(given)[at],
                    100 * running(result.run.correct)[at],
                    color=colour[method],
                    label=method if place == 0 else None,
                    linewidth=1.6,
                    alpha=0.85,
                )
        axes.set_xlim(left=0)
    return True


def entropy_and_threshold(results: Results, dataset: str, path: Path) -> bool:
    """Entropy of every image, which of them were asked about, and the threshold."""
    asking = _asking(results, dataset)
    if not asking:
        return False
    method = "taps" if "taps" in asking else asking[0]
    result = results.of(dataset, method)[0]
    run, t = result.run, np.arange(1, len(result.run) + 1)
    asked = run.asked > 0
    title = f"Entropy and threshold · {dataset} · {method}, seed {result.seed}"
    with figure(path, title, "images seen", "entropy (nats)") as axes:
        axes.scatter(t[~asked], run.entropy[~asked], s=7, color=FAINT, label="not asked", linewidths=0)
        axes.scatter(t[asked], run.entropy[asked], s=18, color=RED, label="asked", linewidths=0)
        finite = np.where(np.isfinite(run.threshold), run.threshold, np.nan)
        axes.plot(t, finite, color=BLACK, linewidth=1.4, label="threshold")
    return True


def query_rate(results: Results, dataset: str, path: Path) -> bool:
    """Share of images asked about so far, and the share that was wanted."""
    asking = _asking(results, dataset)
    if not asking:
        return False
    colour = colours(results.methods)
    with figure(path, f"Share of images asked about · {dataset}", "images seen", "asked so far (%)") as axes:
        wanted = set()
        for method in asking:
            for place, result in enumerate(results.of(dataset, method)):
                at = _thin(len(result.run))
                share = 100 * running(result.run.asked)[at]
                axes.plot(
                    at + 1, share, color=colour[method], label=method if place == 0 else None, linewidth=1.6
                )
                wanted.add(100 * float(result.spec["settings"].get("rate", 0.05)))
        for place, rate in enumerate(sorted(wanted)):
            axes.axhline(rate, color=BLACK, linestyle=":", label="wanted" if place == 0 else None)
        tail = [running(r.run.asked)[len(r.run) // 10] for m in asking for r in results.of(dataset, m)]
        axes.set_ylim(0, max(1.5 * max(wanted), 110 * max(tail)))
    return True


def buffer_classes(results: Results, dataset: str, path: Path) -> bool:
    """How many labelled images of each class the memory holds at the end."""
    asking = [m for m in _asking(results, dataset) if results.of(dataset, m)[0].row["buffer_classes"]]
    if not asking:
        return False
    method = "taps" if "taps" in asking else asking[0]
    result = results.of(dataset, method)[0]
    counts = sorted(result.row["buffer_classes"].items(), key=lambda item: (-item[1], item[0]))
    part = f", {BARS} most frequent of {len(counts)} classes" if len(counts) > BARS else ""
    title = f"Classes in the buffer at the end · {dataset} · {method}, seed {result.seed}{part}"
    with figure(path, title, "", "labelled images kept") as axes:
        names = [name if len(name) <= 22 else name[:21] + "…" for name, _ in counts[:BARS]]
        axes.bar(range(len(names)), [count for _, count in counts[:BARS]], color=BLUE, width=0.75)
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=9 if len(names) > 25 else 11)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.grid(False, axis="x")
        axes.margins(x=0.01)
    return True


def reliability_diagram(results: Results, dataset: str, path: Path) -> bool:
    """Accuracy of predictions by their confidence; honest confidence lies on the diagonal."""
    methods = results.methods_of(dataset)
    colour = colours(results.methods)
    with figure(path, f"Reliability · {dataset}", "confidence (%)", "accuracy (%)") as axes:
        axes.plot([0, 100], [0, 100], color=GREY, linestyle=":", label="perfectly calibrated")
        for method in shown(methods):
            runs = [result.run for result in results.of(dataset, method)]
            probability = np.concatenate([run.probability for run in runs])
            correct = np.concatenate([run.correct for run in runs])
            share, confidence, accuracy = reliability(probability, correct)
            there = share * len(probability) >= 5  # fewer images say nothing about an accuracy
            error = float(np.mean([result.ece for result in results.of(dataset, method)]))
            axes.plot(
                100 * confidence[there],
                100 * accuracy[there],
                color=colour[method],
                marker="o",
                markersize=4,
                linewidth=1.5,
                label=f"{method} (ECE {100 * error:.1f} %)",
            )
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 100)
    return True


def accuracy_and_latency(results: Results, dataset: str, path: Path) -> bool:
    """Accuracy against time; the line joins methods that nothing faster beats."""
    methods = results.methods_of(dataset)
    colour = colours(results.methods)
    points = [
        (
            mean_of(results.of(dataset, m), "ms_p50"),
            100 * float(np.mean([result.top1 for result in results.of(dataset, m)])),
        )
        for m in methods
    ]
    title = f"Accuracy against time · {dataset}"
    with figure(path, title, "median time of an image (ms, log scale)", "top-1 accuracy (%)") as axes:
        axes.set_xscale("log")
        front = frontier(points)
        axes.plot([points[i][0] for i in front], [points[i][1] for i in front], color=FAINT, zorder=1)
        used: list[str] = []
        for method, (ms, accuracy) in zip(methods, points, strict=True):
            marker = MARKERS[used.count(colour[method]) % len(MARKERS)]
            used.append(colour[method])
            axes.scatter([ms], [accuracy], s=70, color=colour[method], marker=marker, label=method, zorder=2)
        axes.margins(0.12)
        _plain_ticks(axes)
    return True


def _plain_ticks(axes: object) -> None:
    """Milliseconds as 5, 10, 50 rather than powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis = axes.xaxis  # type: ignore[attr-defined]
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def frontier(points: list[tuple[float, float]]) -> list[int]:
    """Indices of the points that no faster or equally fast point beats, from fast to slow.

    >>> frontier([(1.0, 50.0), (2.0, 40.0), (3.0, 60.0)])
    [0, 2]
    """
    best, kept = -np.inf, []
    for index in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if points[index][1] > best:
            best = points[index][1]
            kept.append(index)
    return kept
