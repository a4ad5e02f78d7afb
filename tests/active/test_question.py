"""Which question is put: the one that tells more a second, as long as there is time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.active.question import Questions, which_seconds


@given(
    weights=st.lists(st.floats(0, 1), min_size=2, max_size=12).filter(lambda found: sum(found) > 0.01),
    which=st.floats(0.5, 30),
    is_it=st.floats(0.5, 30),
)
def test_the_one_that_tells_more_a_second(weights: list[float], which: float, is_it: float) -> None:
    probs = [weight / sum(weights) for weight in weights]
    whole = -sum(p * math.log(p) for p in probs if p > 0) / which
    top = max(probs)
    part = -sum(p * math.log(p) for p in (top, 1 - top) if p > 0) / is_it
    chosen = Questions("both", {"which": which, "is_it": is_it}).choose(np.array(probs))
    if abs(whole - part) > 1e-9:
        assert chosen == ("which" if whole > part else "is_it")


def test_time_grows_with_the_classes_from_a_yes_or_no_to_one_of_fifty() -> None:
    assert which_seconds(2) == which_seconds(1) == 1.6
    assert which_seconds(50) == pytest.approx(11.7, abs=0.02)
    assert which_seconds(100) - which_seconds(50) == pytest.approx(2.175)


@given(kinds=st.sampled_from(["which", "is_it", "both"]), total=st.floats(0.1, 60), seed=st.integers(0, 99))
def test_no_more_time_is_spent_than_there_is_and_none_is_left_that_would_do(
    kinds: str, total: float, seed: int
) -> None:
    chance, costs = np.random.default_rng(seed), {"which": 5.0, "is_it": 1.5}
    questions, spent = Questions(kinds, costs, total), 0.0
    while (kind := questions.choose(chance.dirichlet(np.ones(6)))) is not None:
        assert questions.put(kind) == costs[kind] / 5.0
        spent += costs[kind]
    assert questions.spent == pytest.approx(spent)
    assert spent <= total + 1e-6
    cheapest = 5.0 if kinds == "which" else 1.5
    assert total - spent < cheapest + 1e-6
