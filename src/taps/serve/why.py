"""Why a question was put, in words and numbers a person can follow."""

from __future__ import annotations

import math
from typing import Any

from taps.active.chooser import ANYWAY
from taps.methods.registry import method_settings
from taps.methods.settings import Asking
from taps.serve import schemas as s
from taps.serve.records import Row, Stream
from taps.serve.store import Store

RULES = {
    "random": "It was drawn by lot, so that the answers are a fair sample.",
    "leverage": "It is unlike the images that were answered so far.",
    "coverage": "There are few answers yet for the classes it may be.",
    "density": "The model is unsure, and many images look like this one.",
}


def explain(stream: Stream, store: Store, row: Row, summary: dict[str, Any]) -> s.Why:
    """Why the expert is asked about this image.

    Args:
        stream: How it began.
        store: Where the answers are.
        row: The prediction.
        summary: What the learner says of itself now.
    """
    settings = method_settings(stream.method, stream.settings)
    by_lot = row.score is not None and row.score >= ANYWAY
    rule = "random" if by_lot else rule_of(settings)
    highest = math.log(len(summary["classes"]))
    threshold = row.threshold if rule == "entropy" else None
    alike, right = store.alike(stream.id, row.label)
    text, allowed = budget_of(settings, summary)
    return s.Why(
        rule=rule,
        text=text_of(rule, row, threshold, settings.views),
        entropy=row.entropy,
        threshold=threshold,
        highest=highest,
        budget=text,
        asked=summary["asked"],
        spent=summary["spent"],
        allowed=allowed,
        alike=alike,
        alike_right=right,
    )


def asking(stream: Stream) -> s.Asking | None:
    """By what rule a stream's method asks, and how often; None where it never does."""
    settings = method_settings(stream.method, stream.settings)
    if not isinstance(settings, Asking):
        return None
    budget = settings.budget if isinstance(settings.budget, int) else None
    return s.Asking(rule=rule_of(settings), rate=settings.rate, budget=budget)


def rule_of(settings: Any) -> str:
    """What the choice of this question was made on."""
    if getattr(settings, "policy", "") == "random":
        return "random"
    return str(getattr(settings, "ask_by", "entropy"))


def text_of(rule: str, row: Row, threshold: float | None, views: int) -> str:
    """The reason in one sentence."""
    if rule == "margin" and len(row.top) > 1:
        (first, high), (second, low) = row.top[:2]
        return f"The model hesitates between “{first}” ({high:.0%}) and “{second}” ({low:.0%})."
    if rule in RULES:
        return RULES[rule]
    began = "Seen in parts, the model is unsure" if views > 1 else "The model is unsure"
    if threshold is None:
        return f"{began}: its uncertainty is {row.entropy:.2f}."
    return f"{began}: its uncertainty is {row.entropy:.2f}, and it asks above {threshold:.2f}."


def budget_of(settings: Any, summary: dict[str, Any]) -> tuple[str, float]:
    """What is left of the budget, in words, and how many questions it has room for so far."""
    spent, seen = summary["spent"], summary["seen"]
    less = " A yes or no counts as part of one." if summary["questions"]["is_it"] else ""
    if isinstance(settings.budget, int):
        left = max(settings.budget - spent, 0)
        return f"{_number(left)} of {settings.budget:,} questions are left.{less}", settings.budget
    share = spent / seen if seen else 0.0
    return (
        f"{_number(spent)} questions for {seen:,} images: {share:.1%}, of {settings.rate:.1%} allowed.{less}",
        settings.rate * seen,
    )


def _number(value: float) -> str:
    """With a tenth where there is one.

    >>> _number(1200), _number(3.2)
    ('1,200', '3.2')
    """
    return f"{value:,.1f}".removesuffix(".0")
