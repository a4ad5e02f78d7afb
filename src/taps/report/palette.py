"""The colours of every picture and page. No imports: charts of any kind may use it."""

from __future__ import annotations

from collections.abc import Sequence

# Told apart in print, on screens and by colour-blind readers (after Okabe and Ito).
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


def colours(methods: Sequence[str]) -> dict[str, str]:
    """A colour for each method, the same in every picture of a report."""
    free = [colour for colour in COLOURS if colour not in {FIXED.get(method) for method in methods}]
    chosen: dict[str, str] = {}
    for method in methods:
        chosen[method] = FIXED.get(method) or free[len([m for m in chosen if m not in FIXED]) % len(free)]
    return chosen
