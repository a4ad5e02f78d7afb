"""Charts with one row a name: points with intervals, and bars."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from taps.report.palette import BLUE
from taps.report.svg import SIZE, TOP, framed, nice_ticks
from taps.report.svg_primitives import BOTTOM, LETTER, Frame

ROW = 20  # height of one


def dotplot(
    rows: Sequence[tuple[str, float, float | None]],
    *,
    x_title: str,
    title: str = "",
    groups: Sequence[tuple[int, int]] = (),
    level: float | None = None,
) -> str:
    """One row a name: a point, and its interval where there is one.

    Args:
        rows: Name, value, half-width of its interval.
        x_title: Below the axis.
        title: Above the picture.
        groups: First and last row of those that a bar on the right joins.
        level: Where a dashed line stands.
    """
    left = min(16 + LETTER * max(len(name) for name, *_ in rows), SIZE[0] / 2)
    top = TOP - 12 + (18 if title else 0)
    size = SIZE[0], int(top + ROW * len(rows) + BOTTOM)
    values = [value + side * (half or 0.0) for _, value, half in rows for side in (-1, 1)]
    values += [] if level is None else [level]
    spare = 0.04 * (max(values) - min(values)) or 0.5
    x = min(values) - spare, max(values) + spare
    frame = Frame(size, 16 + 8 * len(groups), x, (0.0, 1.0), left=left, top=top)
    points = [part for index, row in enumerate(rows) for part in _point(frame, index, *row)]
    return framed(size, title, x_title, [*_scale(frame, x_title, level), *points, *_joined(frame, groups)])


def _scale(frame: Frame, x_title: str, level: float | None) -> Iterator[str]:
    """The grid with its numbers, and the dashed line."""
    right, bottom = frame.ends
    down = f'y1="{frame.top}" y2="{bottom}"'
    for tick in nice_ticks(*frame.x):
        at, _ = frame.place(tick, 0)
        yield f'<line class="grid" x1="{at}" x2="{at}" {down}/>'
        yield f'<text x="{at}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>'
    if level is not None:
        at, _ = frame.place(level, 0)
        yield f'<line stroke="currentColor" stroke-dasharray="5 4" x1="{at}" x2="{at}" {down}/>'
    middle = (frame.left + right) / 2
    yield f'<text x="{middle}" y="{bottom + 35}" text-anchor="middle">{html.escape(x_title)}</text>'


def _point(frame: Frame, index: int, name: str, value: float, half: float | None) -> Iterator[str]:
    """A row: its name, its interval, and the point on it."""
    y = frame.top + ROW * (index + 0.5)
    yield f'<text class="name" x="{frame.left - 8}" y="{y + 4}" text-anchor="end">{html.escape(name)}</text>'
    if half is not None:
        low, high = frame.place(value - half, 0)[0], frame.place(value + half, 0)[0]
        yield f'<line stroke="{BLUE}" stroke-width="2" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>'
    at, _ = frame.place(value, 0)
    yield f'<circle cx="{at}" cy="{y}" r="4.5" fill="{BLUE}"><title>{value:.4g}</title></circle>'


def _joined(frame: Frame, groups: Sequence[tuple[int, int]]) -> Iterator[str]:
    for place, (first, last) in enumerate(groups):
        at = frame.ends[0] + 10 + 8 * place
        ends = f'y1="{frame.top + ROW * first + 4}" y2="{frame.top + ROW * (last + 1) - 4}"'
        yield f'<line stroke="currentColor" stroke-width="4" x1="{at}" x2="{at}" {ends}/>'


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
    return framed((SIZE[0], ROW * len(counts) + 6 + top), title, "counts by class", parts)
