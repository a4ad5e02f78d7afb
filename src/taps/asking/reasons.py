"""The sentence that says why a question is asked, at the console and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taps.asking.rules import RANDOM_SCORE, RULES, Asked


def rule_of(settings: Any, score: float | None = None) -> str:
    """The rule a method asks by: its acquisition, or "random"; with a score, the rule of that question."""
    drawn = score is not None and score >= RANDOM_SCORE
    if drawn or getattr(settings, "policy", "") == "random":
        return "random"
    return str(getattr(settings, "acquisition", "entropy"))


def reason(
    settings: Any, top: Sequence[Sequence[Any]], entropy: float, threshold: float | None, score: float | None
) -> str:
    """Why the annotator is asked about an image: the sentence of the rule that chose it.

    For the arguments see `Asked`.
    """
    why = RULES[rule_of(settings, score)].why
    return why if isinstance(why, str) else why(Asked(top, entropy, threshold, getattr(settings, "views", 1)))
