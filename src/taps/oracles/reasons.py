"""The sentence that says why a question is asked, at the console and on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taps.active.acquisition import ANYWAY

RULES = {
    "random": "It was drawn at random, so that the answers are a fair sample.",
    "leverage": "It is unlike the images that were answered so far.",
    "coverage": "There are few answers yet for the classes it may be.",
    "confidence": "It is among the images the model is least sure of.",
    "sensitivity": "A little noise would change what the model says.",
    "vessal": "The model is unsure, and it is unlike the images that were answered so far.",
    "density": "The model is unsure, and many images look like this one.",
}

SURE = 0.5  # margin above which the model does not hesitate: it asks about the least sure there is


def rule_of(settings: Any, score: float | None = None) -> str:
    """The rule a method asks by: its acquisition, or "random"; with a score, the rule of that question."""
    drawn = score is not None and score >= ANYWAY
    if drawn or getattr(settings, "policy", "") == "random":
        return "random"
    return str(getattr(settings, "acquisition", "entropy"))


def reason(
    settings: Any, top: Sequence[Sequence[Any]], entropy: float, threshold: float | None, score: float | None
) -> str:
    """Why the annotator is asked about an image, from the method's settings and its prediction.

    Args:
        top: The likeliest classes and their probabilities, as in `Prediction.to_json`.
        threshold: None where the method compares with none.
    """
    rule = rule_of(settings, score)
    if rule == "margin" and len(top) > 1:
        (first, high), (second, low) = top[:2]
        begin = "The model hesitates between" if high - low < SURE else "The likeliest classes are"
        return f"{begin} “{first}” ({high:.0%}) and “{second}” ({low:.0%})."
    if rule in RULES:
        return RULES[rule]
    if threshold is None:
        return "A question was due."
    several = getattr(settings, "views", 1) > 1
    begin = "Seen in parts, the model is unsure" if several else "The model is unsure"
    return f"{begin}: its uncertainty is {entropy:.2f}, and it asks above {threshold:.2f}."
