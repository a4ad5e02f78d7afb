"""What more answers would bring, by what they brought on the development streams."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

MORE = 20  # answers ahead that are spoken of
FEWEST = 10  # answers before anything is said
# Fitted to the development sets by recipes/pace.py: with n answers, m more bring about
# 100 · GROWTH · 4·c·(1 − c) · ln((1 + n + m) / (1 + n)) points, where c is the mean confidence so far.
GROWTH = 0.205
NINE_OF_TEN = (0.0, 0.54)  # between which growths nine of ten streams lie


@dataclass(frozen=True)
class Forecast:
    """Points of accuracy that so many more answers would bring, with a 90 % interval."""

    answers: int
    gain: float
    low: float
    high: float

    @property
    def said(self) -> str:
        """In words.

        >>> Forecast(20, 1.2, 0.2, 3.4).said
        '20 more answers: about +1 point (0 to +3)'
        """
        gain, low, high = (_points(value) for value in (self.gain, self.low, self.high))
        unit = "point" if gain == "+1" else "points"
        return f"{self.answers} more answers: about {gain} {unit} ({low} to {high})"

    def plain(self) -> dict[str, Any]:
        """For JSON, rounded."""
        rounded = {name: round(value, 2) for name, value in vars(self).items()}
        return {"said": self.said, **rounded}


def forecast(answers: int, sure: float, more: int = MORE) -> Forecast | None:
    """What so many more answers would bring to the accuracy of images to come; None while it is too early.

    Args:
        answers: Those so far.
        sure: Mean probability of the predicted class over the images so far. Where it is near 1 there is
            little to gain; where it is near 0 there are too many classes for a few answers.
        more: How many more.

    >>> forecast(9, 0.5) is None
    True
    >>> early, late = forecast(10, 0.6), forecast(200, 0.6)
    >>> early.gain > 4 * late.gain > 0
    True
    """
    if answers < FEWEST:
        return None
    steps = 100 * 4 * sure * (1 - sure) * math.log((1 + answers + more) / (1 + answers))
    return Forecast(more, *(steps * growth for growth in (GROWTH, *NINE_OF_TEN)))


def _points(value: float) -> str:
    """A whole number of points with its sign; 0 has none."""
    return f"{round(value):+d}" if round(value) else "0"
