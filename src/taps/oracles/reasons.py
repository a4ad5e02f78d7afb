"""Why a question is put, in a sentence a person can follow: at the console and on the page."""

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
    "drift": "The answers so far have changed what the model says of it.",
    "clusters": "It is typical of images of which few were answered.",
    "density": "The model is unsure, and many images look like this one.",
}


def rule_of(settings: Any, score: float | None = None) -> str:
    """What a method's questions are chosen by, or this one, where its score is given.

    Args:
        settings: Of the method.
        score: What the threshold was compared with.
    """
    drawn = score is not None and score >= ANYWAY
    if drawn or getattr(settings, "policy", "") == "random":
        return "random"
    return str(getattr(settings, "acquisition", "entropy"))


def reason(
    settings: Any, top: Sequence[Sequence[Any]], entropy: float, threshold: float | None, score: float | None
) -> str:
    """Why the annotator is asked about an image.

    Args:
        settings: Of the method.
        top: The likeliest classes and their probabilities.
        entropy: The uncertainty of the prediction.
        threshold: What the score was compared with; None for none.
        score: What the question was chosen on.
    """
    rule = rule_of(settings, score)
    if rule == "margin" and len(top) > 1:
        (first, high), (second, low) = top[:2]
        return f"The model hesitates between “{first}” ({high:.0%}) and “{second}” ({low:.0%})."
    if rule in RULES:
        return RULES[rule]
    if threshold is None:
        return "A question was due."
    began = (
        "Seen in parts, the model is unsure" if getattr(settings, "views", 1) > 1 else "The model is unsure"
    )
    return f"{began}: its uncertainty is {entropy:.2f}, and it asks above {threshold:.2f}."
