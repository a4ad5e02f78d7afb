"""Small charts as inline SVG, so that a page needs nothing but itself."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from taps.active.chooser import ANYWAY
from taps.report.palette import BLUE

WIDTH, HEIGHT = 820, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 40


@dataclass(frozen=True)
class Line:
    """A named curve."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    dashed: bool = False


@dataclass(frozen=True)
class Dots:
    """A named cloud of points."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    radius: float = 2.2


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that span a range.

    >>> nice_ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = max(high - low, 1e-9)
    step = 10 ** math.floor(math.log10(span / count))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= count + 1e-9)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def chart(
    marks: Sequence[Line | Dots], *, x_title: str, y_title: str, percent: bool = False, y_zero: bool = True
) -> str:
    """Curves and points over common axes, with a legend."""
    xs = [x for mark in marks for x in mark.xs] or [0.0, 1.0]
    ys = [y for mark in marks for y in mark.ys if math.isfinite(y)] or [0.0, 1.0]
    x_low, x_high = min(xs), max(max(xs), min(xs) + 1)
    y_low = 0.0 if y_zero else min(ys)
    y_high = max(max(ys) * 1.05, y_low + 1e-6)

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return round(across, 1), round(down, 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(y_title)}">']
    for tick in nice_ticks(y_low, y_high):
        _, y = place(x_low, tick)
        text = f"{tick:.0%}" if percent else f"{tick:g}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{text}</text>')
    for tick in nice_ticks(x_low, x_high, 8):
        x, _ = place(tick, y_low)
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{tick:g}</text>')
    for mark in marks:
        points = [place(x, y) for x, y in zip(mark.xs, mark.ys, strict=True) if math.isfinite(y)]
        if isinstance(mark, Line):
            path = " ".join(f"{x},{y}" for x, y in points)
            dash = ' stroke-dasharray="5 4"' if mark.dashed else ""
            parts.append(
                f'<polyline fill="none" stroke="{mark.colour}" stroke-width="2"{dash} points="{path}"/>'
            )
        else:
            parts += [
                f'<circle cx="{x}" cy="{y}" r="{mark.radius}" fill="{mark.colour}"/>' for x, y in points
            ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{html.escape(x_title)}</text>')
    parts.append(
        f'<text transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{html.escape(y_title)}</text>"
    )
    return "".join(parts) + "</svg>" + legend(marks)


def on_chart(scores: Sequence[float]) -> list[float]:
    """Scores for a chart: those of questions put at random, far above all others, are drawn at its top.

    >>> on_chart([0.5, 1e6, 2.0])
    [0.5, 2.2, 2.0]
    """
    top = 1.1 * max((score for score in scores if score < ANYWAY), default=1.0)
    return [top if score >= ANYWAY else score for score in scores]


def legend(marks: Sequence[Line | Dots]) -> str:
    items = "".join(
        f'<span><i style="background:{mark.colour}"></i>{html.escape(mark.name)}</span>'
        for mark in marks
        if mark.name
    )
    return f'<p class="legend">{items}</p>'


def bars(counts: Sequence[tuple[str, int]], *, colour: str = BLUE) -> str:
    """Horizontal bars, one a name."""
    if not counts:
        return "<p>No label has been stored yet.</p>"
    row, label = 20, 170
    height, longest = row * len(counts) + 6, max(count for _, count in counts)
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="labels by class">']
    for index, (name, count) in enumerate(counts):
        y = index * row + 3
        width = round((WIDTH - label - 60) * count / longest, 1)
        parts.append(f'<text x="{label - 8}" y="{y + 13}" text-anchor="end">{html.escape(name)}</text>')
        parts.append(f'<rect x="{label}" y="{y}" width="{width}" height="{row - 5}" rx="2" fill="{colour}"/>')
        parts.append(f'<text x="{label + width + 6}" y="{y + 13}">{count}</text>')
    return "".join(parts) + "</svg>"
