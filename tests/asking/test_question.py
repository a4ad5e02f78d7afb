"""Which question is put: the one that tells more a second, as long as there is time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.asking.question import Questions, class_seconds


@given(
    weights=st.lists(st.floats(0, 1), min_size=2, max_size=12).filter(lambda found: sum(found) > 0.01),
    which=st.floats(0.5, 30),
    yes_no=st.floats(0.5, 30),
)
def test_the_one_that_tells_more_a_second(weights: list[float], which: float, yes_no: float) -> None:
    probs = [weight / sum(weights) for weight in weights]
    whole = -sum(p * math.log(p) for p in probs if p > 0) / which
    top = max(probs)
    part = -sum(p * math.log(p) for p in (top, 1 - top) if p > 0) / yes_no
    chosen = Questions("both", {"class": which, "yes_no": yes_no}).choose(np.array(probs))
    if abs(whole - part) > 1e-9:
        assert chosen == ("class" if whole > part else "yes_no")


def test_time_grows_with_the_classes_from_a_yes_or_no_to_one_of_fifty() -> None:
    assert class_seconds(2) == class_seconds(1) == 1.6
    assert class_seconds(50) == pytest.approx(11.7, abs=0.02)
    assert class_seconds(100) - class_seconds(50) == pytest.approx(2.175)


@given(kinds=st.sampled_from(["class", "yes_no", "both"]), total=st.floats(0.1, 60), seed=st.integers(0, 99))
def test_no_more_time_is_spent_than_there_is_and_none_is_left_that_would_do(
    kinds: str, total: float, seed: int
) -> None:
    chance, costs = np.random.default_rng(seed), {"class": 5.0, "yes_no": 1.5}
    questions, spent = Questions(kinds, costs, total), 0.0
    while (kind := questions.choose(chance.dirichlet(np.ones(6)))) is not None:
        assert kinds in (kind, "both")
        assert questions.put(kind) == costs[kind] / 5.0
        spent += costs[kind]
    assert questions.spent == pytest.approx(spent)
    assert spent <= total + 1e-6
    cheapest = 5.0 if kinds == "class" else 1.5
    assert total - spent < cheapest + 1e-6


def test_time_that_is_just_enough_is_enough() -> None:
    questions = Questions("class", {"class": 0.1, "yes_no": 0.05}, total=0.3)
    even, told = np.array([0.5, 0.5]), []
    while (kind := questions.choose(even)) is not None:  # 0.3 - 0.1 - 0.1 is a little less than 0.1
        told.append(questions.put(kind))
    assert told == [1, 1, 1]
    assert all(isinstance(each, int) for each in told)  # so that whole questions are counted in whole numbers


def test_it_goes_on_where_it_was_saved() -> None:
    one, other = (Questions("both", {"class": 4.0, "yes_no": 1.0}, total=9.0) for _ in range(2))
    for kind in ("class", "yes_no", "yes_no"):
        one.put(kind)
    saved = one.values()
    one.put("yes_no")
    assert saved == {"counts": {"class": 1, "yes_no": 2}, "spent": 6.0}
    other.restore(saved)
    assert other.put("yes_no") == 0.25
    assert other.values() == one.values() == {"counts": {"class": 1, "yes_no": 3}, "spent": 7.0}
    assert saved["counts"] == {"class": 1, "yes_no": 2}
