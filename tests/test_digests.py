"""Numbers of methods change on purpose only, and no page of results is older than they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.digests import FILE, same, told

HELD = json.loads(FILE.read_text())
PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "results.json"


@pytest.mark.parametrize("method", HELD)
def test_a_method_says_what_it_said(method: str) -> None:
    assert same(told(method), HELD[method]), (
        f"{method} predicts otherwise than before. Where that is meant: python -m tests.digests --update, "
        "then run recipes/results.py again."
    )


def test_another_prediction_or_confidence_is_noticed() -> None:
    one = {"classes": "0123", "confidence": 0.5}
    assert same(one, {"classes": "01.3", "confidence": 0.5001})
    assert same(one, {"classes": "0120", "confidence": 0.5})  # one image may turn
    assert not same(one, {"classes": "0100", "confidence": 0.5})
    assert not same(one, {"classes": "0123", "confidence": 0.51})
    settings = told("view_ensemble")
    assert not same(settings, HELD["zero"])


@pytest.mark.skipif(not PAGE.is_file(), reason="needs docs/results/results.json")
def test_the_page_of_results_is_not_older_than_the_numbers() -> None:
    stamped = json.loads(PAGE.read_text())["origin"]["digests"]
    older = [name for name, digest in stamped.items() if HELD.get(name, {}).get("digest") != digest]
    assert stamped
    assert not older, f"The numbers of {', '.join(older)} have changed since; run recipes/results.py again."
