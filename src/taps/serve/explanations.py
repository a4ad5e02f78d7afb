"""Why a question was put, with the numbers of the page's small picture."""

from __future__ import annotations

import math
from typing import Any

from taps.methods.registry import method_settings
from taps.methods.settings import Asking
from taps.oracles.reasons import reason, rule_of
from taps.serve import schemas as s
from taps.serve.records import Stream
from taps.serve.store import Store
from taps.session.row import Row


def explain(
    stream: Stream, store: Store, row: Row, summary: dict[str, Any], budget: int | None = None
) -> s.Why:
    """Why the annotator is asked about this image.

    Args:
        stream: How it began.
        store: Where the answers are.
        row: The prediction.
        summary: What the learner says of itself now.
        budget: How many questions there are by now, where that is not as it was in the beginning.
    """
    settings = settings_of(stream, budget)
    rule = rule_of(settings, row.score)
    alike, right = store.alike(stream.id, row.label)
    text, allowed = budget_of(settings, summary)
    return s.Why(
        rule=rule,
        text=reason(settings, row.top, row.entropy, row.threshold, row.score),
        entropy=row.entropy,
        threshold=row.threshold if rule == "entropy" else None,
        highest=math.log(len(summary["classes"])),
        budget=text,
        asked=summary["asked"],
        spent=summary["spent"],
        allowed=allowed,
        alike=alike,
        alike_right=right,
    )


def settings_of(stream: Stream, budget: int | None) -> Any:
    """A stream's settings, with the budget that it has by now."""
    return method_settings(stream.method, stream.settings | ({"budget": budget} if budget else {}))


def asking(stream: Stream, budget: int | None = None) -> s.Asking | None:
    """By what rule a stream's method asks, and how often; None where it never does."""
    settings = settings_of(stream, budget)
    if not isinstance(settings, Asking):
        return None
    budget = settings.budget if isinstance(settings.budget, int) else None
    return s.Asking(rule=rule_of(settings), rate=settings.rate, budget=budget)


def budget_of(settings: Any, summary: dict[str, Any]) -> tuple[str, float]:
    """What is left of the budget, in words, and how many questions it has room for so far."""
    spent, seen = summary["spent"], summary["seen"]
    less = " A yes or no counts as part of one." if summary["questions"]["yes_no"] else ""
    if isinstance(settings.budget, int):
        left = max(settings.budget - spent, 0)
        return f"{_number(left)} of {settings.budget:,} questions are left.{less}", settings.budget
    if settings.expected and seen <= settings.expected and settings.budget == "soft":
        total = round(settings.rate * settings.expected)
        return f"{_number(max(total - spent, 0))} of {total:,} questions are left.{less}", total
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
