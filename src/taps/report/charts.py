"""The pictures of a report. Each says in its title what is shown, on which data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from taps.evaluate.measures import MEASURES, Measure
from taps.evaluate.metrics import reliability
from taps.evaluate.results import Result, Results
from taps.report.marks import Dots, Line
from taps.report.palette import BLACK, BLUE, FAINT, GREY, RED, colours
from taps.report.scores import mean_over_sets
from taps.report.svg import SIZE, SMALL, chart, span

Floats = NDArray[np.float64]
MOST = 5  # curves in one picture; of more, each has a picture of its own
SETTLED = 20  # running means of fewer images than this are noise and would squeeze the rest of the picture
FEWEST = 5  # images of a bin: fewer say nothing about an accuracy


def running(values: Floats) -> Floats:
    """Mean of everything so far, at every image."""
    return np.cumsum(values) / np.arange(1, len(values) + 1)


def thin(n: int, points: int = 100) -> NDArray[np.int64]:
    """Places to draw: a small picture shows no more."""
    return np.unique(np.linspace(min(SETTLED, n) - 1, n - 1, points).astype(np.int64))


def asking(results: Results, dataset: str) -> list[str]:
    """The methods that put questions."""
    return [m for m in results.methods_of(dataset) if any(result.rate for result in results.of(dataset, m))]


def over_stream(results: Results, dataset: str, baseline: str) -> list[str]:
    """Running accuracy: mean over seeds, shaded from the lowest to the highest.

    Of many methods each has a picture of its own, with the baseline in grey, and all have the same axes.
    """
    methods, colour = results.methods_of(dataset), colours(results.methods)
    lines = {method: _running_line(results.of(dataset, method), method, colour[method]) for method in methods}
    y = span(v for line in lines.values() for v in (*line.ys, *line.low, *line.high))
    titles = {"x_title": "images seen", "y_title": "right so far, %"}
    if len(methods) <= MOST:
        return [chart(list(lines.values()), title="Accuracy over the stream", y=y, **titles)]
    base = lines.get(baseline)
    grey = [] if base is None else [Line("", base.xs, base.ys, GREY, dashed=True)]
    shown = [(method, line) for method, line in lines.items() if method != baseline]
    return [
        chart(
            [*grey, Line("", line.xs, line.ys, BLUE, False, line.low, line.high)],
            title=method,
            y=y,
            size=SMALL,
            **titles,
        )
        for method, line in shown
    ]


def _running_line(runs: Sequence[Result], name: str, colour: str) -> Line:
    curves = np.stack([100 * running(result.run.correct) for result in runs])
    at = thin(curves.shape[1])
    xs, ys = (at + 1.0).tolist(), curves.mean(0)[at].tolist()
    if len(curves) == 1:
        return Line(name, xs, ys, colour)
    return Line(name, xs, ys, colour, False, curves.min(0)[at].tolist(), curves.max(0)[at].tolist())


def over_stream_of(runs: Sequence[Result]) -> str:
    """Running accuracy of each order."""
    shades = colours([f"seed {result.seed}" for result in runs])
    lines = [
        _running_line([result], name, colour)
        for result, (name, colour) in zip(runs, shades.items(), strict=True)
    ]
    y = span(value for line in lines for value in line.ys)
    return chart(
        lines, x_title="images seen", y_title="right so far, %", title="Accuracy over the stream", y=y
    )


def against_labels(results: Results, dataset: str, baseline: str) -> list[str]:
    """Running accuracy against the labels given so far; level lines: baseline, best without labels."""
    ask = asking(results, dataset)
    level = {
        m: 100 * float(np.mean([r.top1 for r in results.of(dataset, m)])) for m in results.methods_of(dataset)
    }
    quiet = sorted((m for m in level if m not in ask and m != baseline), key=lambda m: -level[m])
    flat = [m for m in (baseline, *quiet[:1]) if m in level and m not in ask]
    colour, lines = colours(results.methods), []
    for method in ask:
        lines += [
            _label_line(result, method if i == 0 else "", colour[method])
            for i, result in enumerate(results.of(dataset, method))
        ]
    if not lines:
        return []
    far = max(x for line in lines for x in line.xs)
    lines += [Line(m, [0.0, far], [level[m]] * 2, colour[m], dashed=True) for m in flat]
    y = span(value for line in lines for value in line.ys)
    return [
        chart(
            lines,
            x_title="labels given so far",
            y_title="right so far, %",
            title="Accuracy against labels",
            y=y,
        )
    ]


def _label_line(result: Result, name: str, colour: str) -> Line:
    n = len(result.run)
    given = np.cumsum(np.bincount([t for t in result.answers if t < n], minlength=n)[:n])
    at = thin(n)
    return Line(
        name, given[at].astype(float).tolist(), (100 * running(result.run.correct)[at]).tolist(), colour
    )


def asked_share(results: Results, dataset: str) -> list[str]:
    """Share of images asked about so far, and the share that was wanted."""
    ask, colour = asking(results, dataset), colours(results.methods)
    lines, wanted = [], set()
    for method in ask:
        for place, result in enumerate(results.of(dataset, method)):
            at = thin(len(result.run))
            share = (100 * running(result.run.asked)[at]).tolist()
            lines.append(Line(method if place == 0 else "", (at + 1.0).tolist(), share, colour[method]))
            wanted.add(100 * float(result.spec["settings"].get("rate", 0.05)))
    if not lines:
        return []
    ends = [min(line.xs[0] for line in lines), max(line.xs[-1] for line in lines)]
    lines += [Line("wanted", ends, [rate] * 2, BLACK, dashed=True) for rate in sorted(wanted)]
    top = max(2 * max(wanted), 1.2 * max(line.ys[len(line.ys) // 4] for line in lines))
    shown = [
        Line(each.name, each.xs, [min(y, top) for y in each.ys], each.colour, each.dashed) for each in lines
    ]
    titles = {"x_title": "images seen", "y_title": "asked so far, %"}
    return [chart(shown, title="Images asked about", y=(0.0, top), **titles)]


def reliability_of(runs: Sequence[Result], title: str, *, small: bool = False) -> str:
    """Accuracy of predictions by their confidence; honest confidence lies on the diagonal."""
    probability = np.concatenate([result.run.probability for result in runs])
    correct = np.concatenate([result.run.correct for result in runs])
    share, confidence, accuracy = reliability(probability, correct)
    there = share * len(probability) >= FEWEST
    error = float(np.abs(confidence - accuracy) @ share)
    xs, ys = (100 * confidence[there]).tolist(), (100 * accuracy[there]).tolist()
    marks = [
        Line("", [0.0, 100.0], [0.0, 100.0], GREY, dashed=True),
        Line("", xs, ys, BLUE),
        *(
            Dots("", [x], [y], BLUE, 1.5 + 9 * float(s) ** 0.5)
            for x, y, s in zip(xs, ys, share[there], strict=True)
        ),
    ]
    return chart(
        marks,
        x_title="confidence, %",
        y_title=f"right, % (ECE {100 * error:.1f})",
        title=title,
        y=(0.0, 100.0),
        size=SMALL if small else SIZE,
    )


def reliability_of_all(results: Results, datasets: Sequence[str]) -> list[str]:
    """One picture a method, over all these data sets."""
    found = {m: [r for dataset in datasets for r in results.of(dataset, m)] for m in results.methods}
    return [reliability_of(runs, method, small=True) for method, runs in found.items() if runs]


def trade_off(results: Results, against: Measure, measure: Measure = MEASURES["top1"], *, title: str) -> str:
    """A measure against what it costs, means over data sets; the line joins what nothing cheaper beats."""
    sign = 1 if measure.better == "higher" else -1
    found = {
        m: (mean_over_sets(results, m, against), mean_over_sets(results, m, measure)) for m in results.methods
    }
    points = {
        m: (_scaled(against, x), _scaled(measure, y))
        for m, (x, y) in found.items()
        if x is not None and y is not None
    }
    if len({x for x, _ in points.values()}) < 2:
        return ""
    names = list(points)
    front = frontier([(points[m][0], sign * points[m][1]) for m in names])
    best, rest = [names[i] for i in front], [m for i, m in enumerate(names) if i not in front]
    xs, ys = [points[m][0] for m in best], [points[m][1] for m in best]
    marks: list[Line | Dots] = [
        Line("", xs, ys, FAINT),
        Dots("not beaten by a cheaper one", xs, ys, RED, 5.0, best),
        Dots("beaten", [points[m][0] for m in rest], [points[m][1] for m in rest], BLUE, 4.0, rest),
    ]
    y = span(value for _, value in points.values())
    log = against.unit == "ms"
    x_title = f"{against.title}, {against.unit}{' (log scale)' if log else ''}".strip(", ")
    return chart(marks, x_title=x_title, y_title=measure.heading, title=title, y=y, log_x=log)


def _scaled(measure: Measure, value: float) -> float:
    return 100 * value if measure.unit == "%" else value


def frontier(points: list[tuple[float, float]]) -> list[int]:
    """Indices of the points that no cheaper or equally cheap point beats, from cheap to dear.

    >>> frontier([(1.0, 50.0), (2.0, 40.0), (3.0, 60.0)])
    [0, 2]
    """
    best, kept = -np.inf, []
    for index in sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1])):
        if points[index][1] > best:
            best = points[index][1]
            kept.append(index)
    return kept
