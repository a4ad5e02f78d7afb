"""What charts are made of: curves, points, and the frame that places them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from taps.report.palette import BLACK

LEFT, BOTTOM = 46, 42  # outside the axes: room for numbers and titles
LETTER = 7.8  # width of a letter, on the average, at the 13 pixels of the text


@dataclass(frozen=True)
class Line:
    """A named curve; its name stands at its end. `low` and `high` shade a range around it."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    dashed: bool = False
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Dots:
    """A named cloud of points; each may have a label, which stands beside it where there is room."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    radius: float = 2.2
    labels: Sequence[str] = ()


def finite(mark: Line | Dots) -> Line | Dots:
    """The same without points that have no place on a chart; a range without ends is as wide as its curve."""
    kept = [i for i, point in enumerate(zip(mark.xs, mark.ys, strict=True)) if all(map(math.isfinite, point))]
    there: dict[str, Any] = {name: [getattr(mark, name)[i] for i in kept] for name in ("xs", "ys")}
    if isinstance(mark, Dots):
        return replace(mark, **there, labels=[mark.labels[i] for i in kept] if mark.labels else ())
    for name, ends in (("low", mark.low), ("high", mark.high)):
        there[name] = [ends[i] if math.isfinite(ends[i]) else mark.ys[i] for i in kept] if ends else []
    return replace(mark, **there)


@dataclass(frozen=True)
class Frame:
    """Where the axes of a picture lie, and what they span."""

    size: tuple[int, int]
    right: float
    x: tuple[float, float]
    y: tuple[float, float]
    log_x: bool = False
    left: float = LEFT
    top: float = 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """The corner right and below."""
        return self.size[0] - self.right, self.size[1] - BOTTOM

    def place(self, x: float, y: float) -> tuple[float, float]:
        scale = math.log if self.log_x else float
        low, high = map(scale, self.x)
        right, bottom = self.ends
        across = self.left + (scale(x) - low) / (high - low) * (right - self.left)
        down = bottom - (y - self.y[0]) / (self.y[1] - self.y[0]) * (bottom - self.top)
        return round(across, 1), round(down, 1)


def paint(colour: str) -> str:
    """Black is whatever the page writes in, so that it is seen on dark pages too."""
    return "currentColor" if colour == BLACK else colour
