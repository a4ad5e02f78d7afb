"""One sentence says why a question is put, whoever shows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from taps.asking.reasons import reason, rule_of
from taps.asking.rules import RANDOM_SCORE, RULES

TOP = [["cat", 0.5], ["dog", 0.25]]


@pytest.mark.parametrize(
    ("settings", "threshold", "score", "said"),
    [
        ({}, 0.5, 1.0, "The model is unsure: its uncertainty is 1.00, and it asks above 0.50."),
        ({"views": 8}, 0.5, 1.0, "Seen in parts, the model is unsure"),
        ({}, None, 1.0, "A question was due."),
        ({"acquisition": "margin"}, 0.5, 0.9, "The model hesitates between “cat” (50%) and “dog” (25%)."),
        ({"acquisition": "margin"}, 0.5, RANDOM_SCORE, "drawn at random"),
        ({"policy": "random"}, 0.5, 0.9, "drawn at random"),
        ({"acquisition": "vessal"}, 0.5, 0.9, "unlike the images that were answered"),
    ],
)
def test_why_it_asks(settings: dict[str, Any], threshold: float | None, score: float, said: str) -> None:
    assert said in reason(SimpleNamespace(**settings), TOP, 1.0, threshold, score)


def test_a_model_that_is_sure_does_not_hesitate() -> None:
    settings, top = SimpleNamespace(acquisition="margin"), [["cat", 0.96], ["dog", 0.01]]
    assert reason(settings, top, 0.1, 0.0, 0.05) == "The likeliest classes are “cat” (96%) and “dog” (1%)."


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_sentence_of_its_own(rule: str) -> None:
    settings = SimpleNamespace(acquisition=rule)
    assert rule_of(settings) == rule
    others = {reason(SimpleNamespace(acquisition=each), TOP, 1.0, 0.5, 0.9) for each in RULES if each != rule}
    assert reason(settings, TOP, 1.0, 0.5, 0.9) not in others
