"""The pictures of reports: curves over the stream, reliability, accuracy against cost, rows and bars."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from taps.asking.rules import RANDOM_SCORE
from taps.study.evaluate.measures import MEASURES, Measure, reliability
from taps.study.evaluate.results import Result, Results
from taps.study.report import svg
from taps.study.report.document import side_by_side
from taps.study.report.svg import (
    BLACK,
    BLUE,
    FAINT,
    GREY,
    ORANGE,
    RED,
    SIZE,
    SMALL,
    Dots,
    Frame,
    Line,
    Mark,
    chart,
    colours,
)
from taps.study.report.tables import mean_over_sets

Floats = NDArray[np.float64]
MOST = 5  # curves in one picture; of more, each has a picture of its own
SETTLED = 20  # running means of fewer images than this are noise and would squeeze the rest of the picture
POINTS = 100  # of a curve: a small picture shows no more
FEWEST = 5  # images of a bin: fewer say nothing about an accuracy


def running(values: Floats) -> Floats:
    """Mean of everything so far, at every image."""
    return np.cumsum(values) / np.arange(1, len(values) + 1)


def asking(results: Results, dataset: str) -> list[str]:
    """The methods that ask."""
    return [m for m in results.methods_of(dataset) if any(result.rate for result in results.of(dataset, m))]


def _mean_line(curves: Sequence[tuple[Floats, Floats]], name: str, colour: str) -> Line:
    """The mean of curves where all of them are, shaded from the lowest to the highest."""
    low, high = max(xs[0] for xs, _ in curves), min(xs[-1] for xs, _ in curves)
    at = np.linspace(low, high, POINTS)
    ys = np.stack([np.interp(at, *curve) for curve in curves])
    band = (ys.min(0).tolist(), ys.max(0).tolist()) if len(curves) > 1 else ((), ())
    return Line(name, at.round(2).tolist(), ys.mean(0).tolist(), colour, False, *band)


def _of_methods(
    lines: dict[str, Line], level: Sequence[Line], x_title: str, y_title: str, title: str
) -> list[str]:
    """All curves in one picture; many in one each, with the same axes. Level lines are in every picture."""
    drawn = [*lines.values(), *level]
    y = svg.span(value for line in drawn for value in (*line.ys, *line.low, *line.high))
    draw = partial(chart, x_title=x_title, y_title=y_title, y=y)
    if len(drawn) <= MOST:
        return [draw(drawn, title=title)]
    grey = [replace(line, name="", colour=GREY, dashed=True) for line in level]
    return [
        draw([*grey, replace(line, name="", colour=BLUE)], title=method, size=SMALL)
        for method, line in lines.items()
    ]


def over_stream(results: Results, dataset: str, baseline: str) -> list[str]:
    """Running accuracy; of many methods each has a picture of its own, with the baseline in grey."""
    methods, colour = results.methods_of(dataset), colours(results.methods)
    lines = {
        m: _mean_line(_running(r.run.correct for r in results.of(dataset, m)), m, colour[m]) for m in methods
    }
    level = []
    if len(methods) > MOST and baseline in lines:
        level = [replace(lines.pop(baseline), low=(), high=())]
    return _of_methods(lines, level, "images seen", "right so far, %", "Accuracy over the stream")


def _running(columns: Iterable[Floats]) -> list[tuple[Floats, Floats]]:
    """The running mean of a column of each run in per cent, from where it has settled."""
    found = []
    for column in columns:
        start = min(SETTLED, len(column)) - 1
        ys = 100 * running(column)
        found.append((np.arange(1.0, len(ys) + 1)[start:], ys[start:]))
    return found


def over_stream_of(runs: Sequence[Result]) -> str:
    """Running accuracy of each order."""
    shades = colours([f"seed {result.seed}" for result in runs])
    curves = zip(shades, _running(result.run.correct for result in runs), strict=True)
    lines = {name: _mean_line([curve], name, shades[name]) for name, curve in curves}
    return side_by_side(_of_methods(lines, [], "images seen", "right so far, %", "Accuracy over the stream"))


def against_labels(results: Results, dataset: str, baseline: str) -> list[str]:
    """Running accuracy against the labels given so far; level lines: baseline, best without labels."""
    ask, methods = asking(results, dataset), results.methods_of(dataset)
    if any(result.row.get("outside") for m in methods for result in results.of(dataset, m)):
        return []  # labels of images of no class teach, and are neither right nor wrong
    colour = colours(results.methods)
    lines = {m: _mean_line([_by_labels(r) for r in results.of(dataset, m)], m, colour[m]) for m in ask}
    top1 = {m: 100 * float(np.mean([r.top1 for r in results.of(dataset, m)])) for m in methods}
    quiet = sorted((m for m in methods if m not in ask and m != baseline), key=lambda m: -top1[m])
    level = [m for m in (baseline, *quiet[:1]) if m in top1 and m not in ask]
    far = max((line.xs[-1] for line in lines.values()), default=0.0)
    flat = [Line(m, [0.0, far], [top1[m]] * 2, colour[m], dashed=True) for m in level]
    if not lines:
        return []
    return _of_methods(lines, flat, "labels given so far", "right so far, %", "Accuracy against labels")


def _by_labels(result: Result) -> tuple[Floats, Floats]:
    """Running accuracy when the last image before each label had come, and at the end."""
    n = len(result.run)
    given = np.cumsum(np.bincount([t for t in result.answers if t < n], minlength=n)[:n])
    last = np.append(np.flatnonzero(np.diff(given)), n - 1)
    last = last[last >= min(SETTLED, n) - 1]
    return given[last].astype(np.float64), 100 * running(result.run.correct)[last]


def asked_share(results: Results, dataset: str) -> list[str]:
    """Share of images asked about so far, and the share that was wanted."""
    colour, lines, wanted = colours(results.methods), {}, set()
    for method in asking(results, dataset):
        runs = results.of(dataset, method)
        lines[method] = _mean_line(_running(run.seen.asked for run in runs), method, colour[method])
        wanted |= {100 * float(run.spec["settings"].get("rate", 0.05)) for run in runs}
    if not lines:
        return []
    ends = [min(line.xs[0] for line in lines.values()), max(line.xs[-1] for line in lines.values())]
    level = [Line("wanted", ends, [rate] * 2, BLACK, dashed=True) for rate in sorted(wanted)]
    return _of_methods(lines, level, "images seen", "asked so far, %", "Images asked about")


def questions_of(rows: Sequence[Mapping[str, str]], title: str = "") -> str:
    """The score of every image of `predictions.csv`, which of them were asked about, and the threshold."""
    ys = _on_chart([float(row["score"] or "nan") for row in rows])
    xs = [float(i + 1) for i in range(len(rows))]
    thresholds = [float(row["threshold"] or "inf") for row in rows]
    marks: list[Mark] = []
    kinds = (("not asked", FAINT, 2.2), ("asked", RED, 3.4), ("asked at random", ORANGE, 3.4))
    for name, colour, radius in kinds:
        kept = [i for i, row in enumerate(rows) if _how_asked(row) == name]
        if kept or colour != ORANGE:
            marks.append(Dots(name, [xs[i] for i in kept], [ys[i] for i in kept], colour, radius))
    marks.append(Line("threshold", xs, thresholds, BLUE))
    return chart(marks, x_title="images seen", y_title="score", title=title)


def _how_asked(row: Mapping[str, str]) -> str:
    if row["asked"] == "0":
        return "not asked"
    return "asked at random" if row.get("why") == "random" else "asked"


def _on_chart(scores: Sequence[float]) -> list[float]:
    """Scores for a chart: those of an older run's random questions, far above all others, are at its top.

    >>> _on_chart([0.5, 1e6, 2.0])
    [0.5, 2.2, 2.0]
    """
    top = 1.1 * max((score for score in scores if -RANDOM_SCORE < score < RANDOM_SCORE), default=1.0)
    return [top if score >= RANDOM_SCORE else score for score in scores]


def reliability_of(runs: Sequence[Result], title: str, *, small: bool = False) -> str:
    """Accuracy of predictions by their confidence; honest confidence lies on the diagonal."""
    probability = np.concatenate([result.run.probability for result in runs])
    correct = np.concatenate([result.run.correct for result in runs])
    share, confidence, accuracy = reliability(probability, correct)
    kept = share * len(probability) >= FEWEST
    error = float(np.abs(confidence - accuracy) @ share)
    xs, ys = (100 * confidence[kept]).tolist(), (100 * accuracy[kept]).tolist()
    marks: list[Mark] = [
        Line("", [0.0, 100.0], [0.0, 100.0], GREY, dashed=True),
        Line("", xs, ys, BLUE),
        *(
            Dots("", [x], [y], BLUE, 1.5 + 9 * float(s) ** 0.5)
            for x, y, s in zip(xs, ys, share[kept], strict=True)
        ),
    ]
    y_title, size = f"right, % (ECE {100 * error:.1f})", SMALL if small else SIZE
    return chart(marks, x_title="confidence, %", y_title=y_title, title=title, y=(0.0, 100.0), size=size)


def reliability_of_all(results: Results, datasets: Sequence[str]) -> list[str]:
    """One picture a method, over all these data sets."""
    found = {m: [r for dataset in datasets for r in results.of(dataset, m)] for m in results.methods}
    return [reliability_of(runs, method, small=True) for method, runs in found.items() if runs]


def trade_off(results: Results, against: Measure, measure: Measure = MEASURES["top1"], *, title: str) -> str:
    """A measure against what it costs, means over data sets; the line joins what nothing cheaper beats."""
    found = {
        m: (mean_over_sets(results, m, against), mean_over_sets(results, m, measure)) for m in results.methods
    }
    points = {
        m: (against.scale * x, measure.scale * y)
        for m, (x, y) in found.items()
        if x is not None and y is not None
    }
    if len({x for x, _ in points.values()}) < 2:
        return ""
    names = list(points)
    front = frontier([(points[m][0], measure.sign * points[m][1]) for m in names])
    best, rest = [names[i] for i in front], [m for i, m in enumerate(names) if i not in front]
    xs, ys = [points[m][0] for m in best], [points[m][1] for m in best]
    marks: list[Mark] = [
        Line("", xs, ys, FAINT),
        Dots("not beaten by a cheaper one", xs, ys, RED, 5.0, best),
        Dots("beaten", [points[m][0] for m in rest], [points[m][1] for m in rest], BLUE, 4.0, rest),
    ]
    y = svg.span((value for _, value in points.values()), 0.14)  # room for names above and below
    log = against.unit == "ms"
    x_title = f"{against.title}, {against.unit}{' (log scale)' if log else ''}".strip(", ")
    return chart(marks, x_title=x_title, y_title=measure.heading, title=title, y=y, log_x=log)


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


ROW = 20  # height of a row of `dotplot` and `bars`


def dotplot(
    rows: Sequence[tuple[str, float, float | None]],
    *,
    x_title: str,
    title: str = "",
    faint: Sequence[Sequence[float]] = (),
) -> str:
    """One row a name: a point, and its interval where there is one.

    A row is a name, a value and the half-width of its interval. Each of `faint` is a line behind
    the points with a value for every row.
    """
    left = min(16 + svg.LETTER * max(len(name) for name, *_ in rows), SIZE[0] / 2)
    top = svg.TOP - 12 + (18 if title else 0)
    size = SIZE[0], int(top + ROW * len(rows) + svg.BOTTOM)
    values = [value + side * (half or 0.0) for _, value, half in rows for side in (-1, 1)]
    values += [value for line in faint for value in line]
    spare = 0.04 * (max(values) - min(values)) or 0.5
    x = min(values) - spare, max(values) + spare
    frame = Frame(size, 16, x, (0.0, 1.0), left=left, top=top)
    parts = [*_scale(frame), svg.x_axis_title(frame, x_title)]
    for line in faint:
        points = " ".join(
            f"{frame.place(value, 0)[0]},{top + ROW * (index + 0.5)}" for index, value in enumerate(line)
        )
        parts.append(f'<polyline fill="none" stroke="currentColor" opacity="0.25" points="{points}"/>')
    for index, row in enumerate(rows):
        parts += _point(frame, index, *row)
    return svg.framed(size, title, x_title, parts)


def _scale(frame: Frame) -> Iterator[str]:
    """The grid with its numbers."""
    bottom = frame.ends[1]
    down = f'y1="{frame.top}" y2="{bottom}"'
    for tick in svg.nice_ticks(*frame.x):
        at, _ = frame.place(tick, 0)
        yield f'<line class="grid" x1="{at}" x2="{at}" {down}/>'
        yield f'<text x="{at}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>'


def _point(frame: Frame, index: int, name: str, value: float, half: float | None) -> Iterator[str]:
    """A row: its name, its interval, and the point on it."""
    y = frame.top + ROW * (index + 0.5)
    yield f'<text class="name" x="{frame.left - 8}" y="{y + 4}" text-anchor="end">{html.escape(name)}</text>'
    if half is not None:
        low, high = frame.place(value - half, 0)[0], frame.place(value + half, 0)[0]
        yield f'<line stroke="{BLUE}" stroke-width="2" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>'
    at, _ = frame.place(value, 0)
    yield f'<circle cx="{at}" cy="{y}" r="4.5" fill="{BLUE}"><title>{value:.4g}</title></circle>'


def bars(counts: Sequence[tuple[str, int]], *, title: str = "") -> str:
    """Horizontal bars, one a name."""
    if not counts:
        return "<p>No label has been stored yet.</p>"
    label, top = 170, 24 if title else 0
    longest = max(count for _, count in counts)
    parts = []
    for index, (name, count) in enumerate(counts):
        y = index * ROW + 3 + top
        width = round((SIZE[0] - label - 60) * count / longest, 1)
        short = name if len(name) <= 24 else name[:23] + "…"
        parts.append(f'<text x="{label - 8}" y="{y + 13}" text-anchor="end">{html.escape(short)}</text>')
        parts.append(f'<rect x="{label}" y="{y}" width="{width}" height="{ROW - 5}" rx="2" fill="{BLUE}"/>')
        parts.append(f'<text x="{label + width + 6}" y="{y + 13}">{count}</text>')
    return svg.framed((SIZE[0], ROW * len(counts) + 6 + top), title, "counts by class", parts)
