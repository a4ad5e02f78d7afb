"""Why a question is asked: the sentence and the numbers that the page shows."""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel, Field

from taps.methods.registry import method_settings
from taps.methods.settings import Asking
from taps.oracles.reasons import reason, rule_of
from taps.serve import schemas as s
from taps.serve.records import Stream
from taps.serve.store import Store
from taps.session.row import Row


class Why(BaseModel):
    """Why a question is asked, in words and in the numbers of a small chart."""

    rule: str = Field(description="The acquisition rule: entropy, margin, random, …")
    text: str
    entropy: float
    threshold: float | None = Field(description="Of the entropy; null where the rule is another.")
    highest: float = Field(description="The highest possible entropy: ln of the number of classes.")
    budget: str
    asked: int
    spent: float = Field(description="What they took of the budget: a yes or no is part of a question.")
    allowed: float = Field(description="Questions the budget has room for so far.")
    alike: int = Field(description="Labelled images with the same predicted class.")
    alike_right: int = Field(description="Those of them predicted rightly.")


def explain(
    stream: Stream, store: Store, row: Row, summary: dict[str, Any], budget: int | None = None
) -> Why:
    """Why the annotator is asked about this image.

    Args:
        summary: Of the learner, as `StreamSession.summary` returns it.
        budget: Number of questions, where it is no longer that of the settings.
    """
    settings = _settings(stream, budget)
    rule = rule_of(settings, row.score)
    alike, right = store.alike(stream.id, row.label)
    text, allowed = _budget(settings, summary)
    return Why(
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


def _settings(stream: Stream, budget: int | None) -> Any:
    return method_settings(stream.method, stream.settings | ({"budget": budget} if budget else {}))


def asking(stream: Stream, budget: int | None = None) -> s.Asking | None:
    """The rule that a stream's method asks by, and how often; None where it never asks."""
    settings = _settings(stream, budget)
    if not isinstance(settings, Asking):
        return None
    budget = settings.budget if isinstance(settings.budget, int) else None
    return s.Asking(rule=rule_of(settings), rate=settings.rate, budget=budget)


def _budget(settings: Any, summary: dict[str, Any]) -> tuple[str, float]:
    """What is left of the budget, in words, and how many questions it has room for so far."""
    spent, seen = summary["spent"], summary["seen"]
    less = " A yes or no counts as part of one." if summary["questions"]["yes_no"] else ""
    total: int | None = settings.budget if isinstance(settings.budget, int) else None
    if settings.budget == "soft" and settings.expected and seen <= settings.expected:
        total = round(settings.rate * settings.expected)
    if total is not None:
        return f"{_number(max(total - spent, 0))} of {total:,} questions are left.{less}", total
    share = spent / seen if seen else 0.0
    text = (
        f"{_number(spent)} questions for {seen:,} images: {share:.1%}, of {settings.rate:.1%} allowed.{less}"
    )
    return text, settings.rate * seen


def _number(value: float) -> str:
    """With a tenth where there is one.

    >>> _number(1200), _number(3.2)
    ('1,200', '3.2')
    """
    return f"{value:,.1f}".removesuffix(".0")
