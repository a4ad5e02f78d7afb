"""Names in a chart, beside what they name and not on top of each other."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from taps.report.svg_primitives import LETTER, Dots, Frame, Line, paint

Box = tuple[float, float, float, float]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places in the order of the wanted ones, `gap` apart at least where there is room, within a range.

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


def names_of_lines(marks: Sequence[Line | Dots], frame: Frame) -> Iterator[str]:
    """The name of each curve at its end, moved apart, with a stroke of its colour between the two."""
    right, bottom = frame.ends
    ends = []
    for mark in marks:
        if isinstance(mark, Line) and mark.name and mark.xs:
            ends.append((mark, *frame.place(mark.xs[-1], mark.ys[-1])))
    places = spread([y for _, _, y in ends], 15, frame.top, bottom)
    for (mark, x, y), place in zip(ends, places, strict=True):
        path = f"{x:g},{y:g} {right + 4:g},{y:g} {right + 12:g},{place:g}"
        yield f'<polyline fill="none" stroke="{paint(mark.colour)}" points="{path}"/>'
        yield f'<text class="name" x="{right + 14:g}" y="{place + 4:g}">{html.escape(mark.name)}</text>'


def names_of_points(marks: Sequence[Line | Dots], frame: Frame) -> Iterator[str]:
    """The label of each point where it hides no point and no other label; the first come first."""
    points, wanted = [], []
    for mark in marks:
        if isinstance(mark, Dots):
            placed = [frame.place(x, y) for x, y in zip(mark.xs, mark.ys, strict=True)]
            points += [(x, y, mark.radius) for x, y in placed]
            wanted += [(label, x, y) for label, (x, y) in zip(mark.labels, placed, strict=False)]
    taken: list[Box] = [(x - r, y - r, x + r, y + r) for x, y, r in points]
    for label, x, y in wanted:
        width = LETTER * len(label)
        for across, down in ((8, 4), (-8 - width, 4), (-width / 2, -9), (-width / 2, 18), (6, -7), (6, 16)):
            box = (x + across, y + down - 10, x + across + width, y + down + 3)
            if _inside(box, frame) and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                yield f'<text class="name halo" x="{box[0]:.1f}" y="{y + down:g}">{html.escape(label)}</text>'
                break


def _inside(box: Box, frame: Frame) -> bool:
    return (
        box[0] >= frame.left
        and box[1] >= frame.top - 4
        and box[2] <= frame.size[0]
        and box[3] <= frame.ends[1]
    )


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
