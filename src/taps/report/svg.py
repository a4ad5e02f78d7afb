"""Small charts as inline SVG, so that a page needs nothing but itself.

Charts are narrow, and their text is large for their size: a phone shows one a row, a desk two or three.
Colours of text and grid come from the page (page.css); a file of its own has them inside (`standalone`).
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence

from taps.active.acquisition import ANYWAY
from taps.report.labels import names_of_lines, names_of_points
from taps.report.svg_primitives import LETTER, Dots, Frame, Line, finite, paint

SIZE, SMALL = (440, 290), (210, 180)
TOP = 26  # above the axes: room for what they measure
XMLNS = "http://www.w3.org/2000/svg"
INSIDE = (
    "text{font:13px system-ui,sans-serif;fill:#444}.grid{stroke:#ddd}.name{fill:#222}.title{font-weight:600}"
    ".halo{paint-order:stroke;stroke:#fff;stroke-width:3px}"
)


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


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each power of ten; only the powers where these are many.

    >>> log_ticks(3, 120)
    [5.0, 10.0, 20.0, 50.0, 100.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{first}e{power}") for power in powers for first in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    return inside if len(inside) <= 6 else [tick for tick in inside if math.log10(tick) % 1 == 0]


def chart(
    marks: Sequence[Line | Dots],
    *,
    x_title: str,
    y_title: str,
    title: str = "",
    percent: bool = False,
    y: tuple[float, float] | None = None,
    log_x: bool = False,
    size: tuple[int, int] = SIZE,
) -> str:
    """Curves and points over common axes, as a figure element.

    Args:
        marks: What is drawn, the last on top.
        x_title: Below the axis.
        y_title: Above the axis.
        title: Above the picture.
        percent: Whether values are shares, written as per cent.
        y: What the axis spans; from zero to the highest value unless given.
        log_x: Whether the axis along is logarithmic.
        size: Of the picture.
    """
    marks = [finite(mark) for mark in marks]
    names = [mark.name for mark in marks if isinstance(mark, Line) and mark.name]
    right = 14 + (LETTER * max(map(len, names)) + 14 if names else 0)
    frame = _frame(marks, right, y, log_x, size, TOP + (18 if title else 0))
    parts = [
        *_axes(frame, x_title, y_title, percent),
        *(part for mark in marks for part in _drawn(mark, frame)),
        *names_of_lines(marks, frame),
        *names_of_points(marks, frame),
    ]
    return framed(size, title, f"{y_title} by {x_title}", parts, legend(marks))


def framed(size: tuple[int, int], title: str, said: str, parts: Sequence[str], below: str = "") -> str:
    """A figure element."""
    named = f'<text class="name title" x="4" y="14">{html.escape(title)}</text>' if title else ""
    label = html.escape(f"{title}: {said}" if title else said)
    opened = f'<svg viewBox="0 0 {size[0]} {size[1]}" xmlns="{XMLNS}" role="img" aria-label="{label}">'
    return f'<figure class="chart">{opened}{named}{"".join(parts)}</svg>{below}</figure>'


def standalone(pictures: Sequence[str], columns: int = 3) -> str:
    """Pictures of one size, side by side, as a file of its own."""
    inner = [picture[picture.index("<svg") : picture.index("</svg>") + 6] for picture in pictures]
    width, height = (int(part) for part in inner[0].split('"')[1].split()[2:])
    columns = min(columns, len(inner))
    size = width * columns, height * math.ceil(len(inner) / columns)
    placed = ""
    for i, svg in enumerate(inner):
        x, y = width * (i % columns), height * (i // columns)
        placed += svg.replace("<svg", f'<svg x="{x}" y="{y}" width="{width}" height="{height}"', 1)
    opened = f'<svg viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}" xmlns="{XMLNS}">'
    return f'{opened}<style>{INSIDE}</style><rect width="100%" height="100%" fill="#fff"/>{placed}</svg>\n'


def span(values: Iterable[float], share: float = 0.06) -> tuple[float, float]:
    """From the lowest to the highest, and a share of that more on both sides."""
    there = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    spare = share * (max(there) - min(there)) or 0.05 * abs(max(there)) or 1.0
    return min(there) - spare, max(there) + spare


def _frame(
    marks: Sequence[Line | Dots],
    right: float,
    y: tuple[float, float] | None,
    log_x: bool,
    size: tuple[int, int],
    top: float,
) -> Frame:
    xs = [x for mark in marks for x in mark.xs] or [0.0, 1.0]
    if y is None:
        every = [[*mark.ys, *mark.high] if isinstance(mark, Line) else mark.ys for mark in marks]
        y = 0.0, span([0.0, *(value for values in every for value in values)])[1]
    if log_x:
        x = min(xs) / 1.25, max(xs) * 1.25
    elif any(isinstance(mark, Dots) and mark.labels for mark in marks):
        x = max(span(xs)[0], min(0.0, min(xs))), span(xs)[1]
    else:
        x = min(xs), max(max(xs), min(xs) + 1e-9)
    return Frame(size, right, x, y, log_x, top=top)


def _axes(frame: Frame, x_title: str, y_title: str, percent: bool) -> Iterator[str]:
    right, bottom = frame.ends
    for tick in nice_ticks(*frame.y):
        _, y = frame.place(frame.x[0], tick)
        text = f"{tick:.0%}" if percent else f"{tick:g}"
        yield f'<line class="grid" x1="{frame.left}" x2="{right}" y1="{y}" y2="{y}"/>'
        yield f'<text x="{frame.left - 6}" y="{y + 4}" text-anchor="end">{text}</text>'
    ticks = log_ticks(*frame.x) if frame.log_x else nice_ticks(*frame.x, 5 if frame.size[0] > 300 else 3)
    for tick in ticks:
        x, _ = frame.place(tick, frame.y[0])
        yield f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{_short(tick)}</text>'
    middle = (frame.left + right) / 2
    yield f'<text x="{middle}" y="{bottom + 35}" text-anchor="middle">{html.escape(x_title)}</text>'
    yield f'<text x="4" y="{frame.top - 12}">{html.escape(y_title)}</text>'


def _short(tick: float) -> str:
    return f"{tick / 1000:g}k" if abs(tick) >= 10_000 else f"{tick:g}"


def _drawn(mark: Line | Dots, frame: Frame) -> Iterator[str]:
    colour = paint(mark.colour)
    points = [frame.place(x, y) for x, y in zip(mark.xs, mark.ys, strict=True)]
    if isinstance(mark, Dots):
        labels = mark.labels or [""] * len(mark.xs)
        for (x, y), label in zip(points, labels, strict=True):
            said = f"<title>{html.escape(label)}</title>" if label else ""
            yield f'<circle cx="{x}" cy="{y}" r="{mark.radius}" fill="{colour}">{said}</circle>'
        return
    if mark.low:
        edge = [*zip(mark.xs, mark.high, strict=True), *reversed([*zip(mark.xs, mark.low, strict=True)])]
        around = _joined(frame.place(*point) for point in edge)
        yield f'<polygon fill="{colour}" fill-opacity="0.14" points="{around}"/>'
    dash = ' stroke-dasharray="5 4"' if mark.dashed else ""
    yield f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dash} points="{_joined(points)}"/>'


def _joined(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def on_chart(scores: Sequence[float]) -> list[float]:
    """Scores for a chart: those of questions put at random, far above all others, are drawn at its top.

    >>> on_chart([0.5, 1e6, 2.0])
    [0.5, 2.2, 2.0]
    """
    top = 1.1 * max((score for score in scores if -ANYWAY < score < ANYWAY), default=1.0)
    return [top if score >= ANYWAY else score for score in scores]


def legend(marks: Sequence[Line | Dots]) -> str:
    """The names of clouds of points; those of curves stand at their ends."""
    items = "".join(
        f'<span><i style="background:{mark.colour}"></i>{html.escape(mark.name)}</span>'
        for mark in marks
        if isinstance(mark, Dots) and mark.name
    )
    return f'<p class="legend">{items}</p>' if items else ""
