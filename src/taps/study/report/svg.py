"""Charts as inline SVG, so that a page needs no other file.

Charts are narrow and their text is large for their size: a phone shows one a row, a desk two or three.
Colours of text and grid come from the page (page.css); `standalone` files carry them inside.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

# Distinct in print, on screens and for colour-blind readers (after Okabe and Ito).
BLUE, RED, GREEN, PINK, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
VIOLET, BROWN = "#7F6BB0", "#8C564B"
BLACK, GREY, FAINT, PALE = "#222222", "#666666", "#9bb0c0", "#dddddd"
COLOURS = (BLUE, RED, GREEN, PINK, ORANGE, SKY, VIOLET, BROWN)
FIXED = {
    "zero_shot": GREY,
    "source": GREEN,
    "view_ensemble": ORANGE,
    "taps": RED,
    "taps+": BROWN,
    "zero_shot+": BLACK,
}

SIZE, SMALL = (440, 290), (210, 180)
TOP, LEFT, BOTTOM = 26, 46, 42  # outside the axes: room for numbers and titles
LETTER = 7.8  # mean width of a letter at the text's 13 pixels
XMLNS = "http://www.w3.org/2000/svg"
INSIDE = (
    "text{font:13px system-ui,sans-serif;fill:#444}.grid{stroke:#ddd}.name{fill:#222}.title{font-weight:600}"
    ".halo{paint-order:stroke;stroke:#fff;stroke-width:3px}"
)
Box = tuple[float, float, float, float]


def colours(methods: Sequence[str]) -> dict[str, str]:
    """A colour for each method, the same in every picture of a report."""
    free = [colour for colour in COLOURS if colour not in {FIXED.get(method) for method in methods}]
    others = [method for method in methods if method not in FIXED]
    return {method: FIXED.get(method) or free[others.index(method) % len(free)] for method in methods}


@dataclass(frozen=True)
class Line:
    """A curve, named at its end. `low` and `high` shade a range around it."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    dashed: bool = False
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Dots:
    """Points, named in the legend; each may have a label, which is drawn beside it where there is room."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    radius: float = 2.2
    labels: Sequence[str] = ()


Mark = Line | Dots


def _finite(mark: Mark) -> Mark:
    """The mark without infinite and missing points; a range without ends is as wide as its curve."""
    kept = [i for i, point in enumerate(zip(mark.xs, mark.ys, strict=True)) if all(map(math.isfinite, point))]
    values: dict[str, Any] = {name: [getattr(mark, name)[i] for i in kept] for name in ("xs", "ys")}
    if isinstance(mark, Dots):
        return replace(mark, **values, labels=[mark.labels[i] for i in kept] if mark.labels else ())
    for name, ends in (("low", mark.low), ("high", mark.high)):
        values[name] = [ends[i] if math.isfinite(ends[i]) else mark.ys[i] for i in kept] if ends else []
    return replace(mark, **values)


@dataclass(frozen=True)
class Frame:
    """Where the axes of a picture lie, and the values they span."""

    size: tuple[int, int]
    right: float
    x: tuple[float, float]
    y: tuple[float, float]
    log_x: bool = False
    left: float = LEFT
    top: float = 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """The lower right corner."""
        return self.size[0] - self.right, self.size[1] - BOTTOM

    def place(self, x: float, y: float) -> tuple[float, float]:
        scale = math.log if self.log_x else float
        low, high = map(scale, self.x)
        right, bottom = self.ends
        across = self.left + (scale(x) - low) / (high - low) * (right - self.left)
        down = bottom - (y - self.y[0]) / (self.y[1] - self.y[0]) * (bottom - self.top)
        return round(across, 1), round(down, 1)


def chart(
    marks: Sequence[Mark],
    *,
    x_title: str,
    y_title: str,
    title: str = "",
    percent: bool = False,
    y: tuple[float, float] | None = None,
    log_x: bool = False,
    size: tuple[int, int] = SIZE,
) -> str:
    """Curves and points over common axes, as a figure element; the last mark is on top.

    The y axis spans `y`, by default from zero to the highest value; with `percent` its values are shares.
    """
    marks = [_finite(mark) for mark in marks]
    names = [mark.name for mark in marks if isinstance(mark, Line) and mark.name]
    right = 14 + (LETTER * max(map(len, names)) + 14 if names else 0)
    highs = [value for mark in marks for value in (*mark.ys, *getattr(mark, "high", ()))]
    y = y or (0.0, span([0.0, *highs])[1])
    frame = Frame(size, right, _x_range(marks, log_x), y, log_x, top=TOP + (18 if title else 0))
    parts = [
        *_axes(frame, x_title, y_title, percent),
        *(part for mark in marks for part in _drawn(mark, frame)),
        *_line_names(marks, frame),
        *_point_labels(marks, frame),
    ]
    items = "".join(
        f'<span><i style="background:{mark.colour}"></i>{html.escape(mark.name)}</span>'
        for mark in marks
        if isinstance(mark, Dots) and mark.name
    )
    legend = f'<p class="legend">{items}</p>' if items else ""
    return framed(size, title, f"{y_title} by {x_title}", parts, legend)


def framed(size: tuple[int, int], title: str, description: str, parts: Sequence[str], below: str = "") -> str:
    """A figure element."""
    named = f'<text class="name title" x="4" y="14">{html.escape(title)}</text>' if title else ""
    label = html.escape(f"{title}: {description}" if title else description)
    opened = f'<svg viewBox="0 0 {size[0]} {size[1]}" xmlns="{XMLNS}" role="img" aria-label="{label}">'
    return f'<figure class="chart">{opened}{named}{"".join(parts)}</svg>{below}</figure>'


def standalone(pictures: Sequence[str], columns: int = 3) -> str:
    """Pictures of one size, side by side, as an SVG file."""
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
    """The lowest and the highest finite value, moved apart by a share of their distance on both sides."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    spare = share * (max(known) - min(known)) or 0.05 * abs(max(known)) or 1.0
    return min(known) - spare, max(known) + spare


def _x_range(marks: Sequence[Mark], log_x: bool) -> tuple[float, float]:
    xs = [x for mark in marks for x in mark.xs] or [0.0, 1.0]
    if log_x:
        return min(xs) / 1.25, max(xs) * 1.25
    if any(isinstance(mark, Dots) and mark.labels for mark in marks):
        return max(span(xs)[0], min(0.0, min(xs))), span(xs)[1]
    return min(xs), max(max(xs), min(xs) + 1e-9)


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
        text = f"{tick / 1000:g}k" if abs(tick) >= 10_000 else f"{tick:g}"
        yield f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{text}</text>'
    yield x_axis_title(frame, x_title)
    yield f'<text x="4" y="{frame.top - 12}">{html.escape(y_title)}</text>'


def x_axis_title(frame: Frame, title: str) -> str:
    right, bottom = frame.ends
    middle = (frame.left + right) / 2
    return f'<text x="{middle}" y="{bottom + 35}" text-anchor="middle">{html.escape(title)}</text>'


def _paint(colour: str) -> str:
    """Black is the page's text colour, so that it shows on dark pages too."""
    return "currentColor" if colour == BLACK else colour


def _drawn(mark: Mark, frame: Frame) -> Iterator[str]:
    colour = _paint(mark.colour)
    points = [frame.place(x, y) for x, y in zip(mark.xs, mark.ys, strict=True)]
    if isinstance(mark, Dots):
        labels = mark.labels or [""] * len(mark.xs)
        for (x, y), label in zip(points, labels, strict=True):
            title = f"<title>{html.escape(label)}</title>" if label else ""
            yield f'<circle cx="{x}" cy="{y}" r="{mark.radius}" fill="{colour}">{title}</circle>'
        return
    if mark.low:
        edge = [*zip(mark.xs, mark.high, strict=True), *reversed([*zip(mark.xs, mark.low, strict=True)])]
        around = _joined(frame.place(*point) for point in edge)
        yield f'<polygon fill="{colour}" fill-opacity="0.14" points="{around}"/>'
    dash = ' stroke-dasharray="5 4"' if mark.dashed else ""
    yield f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dash} points="{_joined(points)}"/>'


def _joined(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions in the order of the wanted ones, within a range, at least `gap` apart where there is room.

    >>> spread([10.0, 11.0, 40.0], 8, 0, 50)
    [10.0, 18.0, 40.0]
    """
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    found, least = list(wanted), low
    for i in order:
        found[i] = least = max(least, wanted[i])
        least += gap
    most = high
    for i in reversed(order):
        found[i] = most = min(most, found[i])
        most -= gap
    return found


def _line_names(marks: Sequence[Mark], frame: Frame) -> Iterator[str]:
    """The name of each curve at its end, moved apart, with a stroke of its colour between the two."""
    right, bottom = frame.ends
    lines = [mark for mark in marks if isinstance(mark, Line) and mark.name and mark.xs]
    ends = [frame.place(line.xs[-1], line.ys[-1]) for line in lines]
    heights = spread([y for _, y in ends], 15, frame.top, bottom)
    for line, (x, y), height in zip(lines, ends, heights, strict=True):
        path = f"{x:g},{y:g} {right + 4:g},{y:g} {right + 12:g},{height:g}"
        yield f'<polyline fill="none" stroke="{_paint(line.colour)}" points="{path}"/>'
        yield f'<text class="name" x="{right + 14:g}" y="{height + 4:g}">{html.escape(line.name)}</text>'


def _point_labels(marks: Sequence[Mark], frame: Frame) -> Iterator[str]:
    """The label of each point where it hides no point and no earlier label; else none."""
    taken: list[Box] = []
    wanted = []
    for mark in marks:
        if isinstance(mark, Dots):
            r, placed = mark.radius, [frame.place(x, y) for x, y in zip(mark.xs, mark.ys, strict=True)]
            taken += [(x - r, y - r, x + r, y + r) for x, y in placed]
            wanted += list(zip(mark.labels, placed, strict=False))
    for label, (x, y) in wanted:
        width = LETTER * len(label)
        for across, down in ((8, 4), (-8 - width, 4), (-width / 2, -9), (-width / 2, 18), (6, -7), (6, 16)):
            box = (x + across, y + down - 10, x + across + width, y + down + 3)
            if _inside(box, frame) and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield f'<text class="name halo" x="{box[0]:.1f}" y="{y + down:g}">{html.escape(label)}</text>'
                break


def _inside(box: Box, frame: Frame) -> bool:
    left, top, right, bottom = box
    return left >= frame.left and top >= frame.top - 4 and right <= frame.size[0] and bottom <= frame.ends[1]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
