"""When questions are put: within the budget, early where that is safe, never all of them."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.asking.paced import Paced
from taps.asking.policy import make_policy
from taps.errors import SettingsError
from taps.methods.registry import method_settings


def follow(policy, labels, rng, images=None):
    """Which images are asked about, where every question is answered at once."""
    asked = []
    for label in labels:
        asked.append(policy.decide(float(rng.random())).ask)
        if asked[-1]:
            policy.answer(int(label))
    return np.array(asked)


@given(
    st.sampled_from(["even", "front", 0.25, 0.5, 1.0]),
    st.sampled_from([0.02, 0.05, 0.3]),
    st.integers(20, 300),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(0, 100),
)
def test_no_pace_exceeds_the_budget(pace, rate, expected, explore, seed):
    rng = np.random.default_rng(seed)
    policy = make_policy("paced", rate=rate, pace=pace, expected=expected, explore=explore, seed=seed)
    asked = follow(policy, rng.integers(5, size=2 * expected), rng)
    assert asked[:expected].sum() <= math.ceil(rate * expected - 1e-9)
    assert asked.sum() <= math.ceil(2 * rate * expected - 1e-9)
    assert asked.sum() >= 2 * rate * expected - 4


def test_an_ordinary_stream_is_asked_about_early_and_not_early_alone():
    rng = np.random.default_rng(0)
    asked = follow(Paced(0.05, pace="front", expected=1000, classes=10), rng.integers(10, size=1000), rng)
    assert asked.sum() == 50
    assert asked[:150].sum() >= 0.6 * 50
    assert asked[500:].sum() >= 0.1 * 50


def test_classes_one_after_the_other_are_asked_about_all_along():
    rng = np.random.default_rng(0)
    asked = follow(Paced(0.05, pace="front", expected=1000, classes=10), np.repeat(np.arange(10), 100), rng)
    each = asked.reshape(10, 100).sum(axis=1)
    assert asked.sum() >= 48
    assert each.min() >= 2
    assert each.max() <= 8


@pytest.mark.parametrize("classes", [10, 50])
def test_a_few_classes_at_a_time_are_asked_about_all_along(classes):
    rng = np.random.default_rng(0)
    labels = np.concatenate([rng.integers(classes, size=2)[rng.integers(2, size=100)] for _ in range(10)])
    asked = follow(Paced(0.05, pace="front", expected=1000, classes=classes), labels, rng)
    each = asked.reshape(10, 100).sum(axis=1)
    assert asked.sum() >= 48
    assert each.min() >= 2
    assert each[0] <= 15  # of 50, before that could be known


def test_unanswered_questions_do_not_pile_up():
    rng = np.random.default_rng(0)
    policy = Paced(0.05, pace="front", expected=1000)
    asked = [policy.decide(float(rng.random())).ask for _ in range(200)]
    assert sum(asked) <= 14  # of 50: 10 would be even


def test_an_exponent_is_the_curve_it_names():
    rng = np.random.default_rng(0)
    asked = follow(Paced(0.1, pace=0.5, expected=1000), np.zeros(1000), rng)
    for image in (50, 250, 640, 1000):
        assert abs(asked[:image].sum() - 100 * math.sqrt(image / 1000)) <= 2.5


def test_a_number_of_questions_needs_no_rate():
    for pace in ("front", "even", 0.5):
        rng = np.random.default_rng(0)
        policy = make_policy("paced", budget=40, pace=pace, expected=200, explore=0.1)
        asked = follow(policy, rng.integers(7, size=400), rng)
        assert 38 <= asked[:200].sum() <= 40
        assert asked.sum() <= 40


def test_a_hard_budget_stands_beside_the_pace():
    """It takes no question away that the pace has, and ends no pace."""
    labels = np.random.default_rng(0).integers(10, size=500)
    soft, hard = (
        follow(
            make_policy("paced", rate=0.1, budget=budget, pace="front", expected=500, classes=10),
            labels,
            np.random.default_rng(1),
        )
        for budget in ("soft", "hard")
    )
    assert soft.tolist() == hard.tolist()
    assert hard[:125].sum() >= 30  # of 50: 13 would be even


@pytest.mark.parametrize("name", ["dynamic", "quantile", "random", "fixed"])
def test_without_a_pace_a_hard_budget_holds_all_along_whatever_the_length(name):
    rng = np.random.default_rng(0)
    policy = make_policy(name, rate=0.1, budget="hard", pace="front", expected=500, tau0=0.2)
    asked = follow(policy, rng.integers(10, size=500), rng)
    assert asked.any()
    assert (np.cumsum(asked) <= np.ceil(0.1 * np.arange(1, 501) - 1e-9)).all()


SPENT = [  # images, rate; the fractions of a question round up
    *itertools.product((50, 51, 99, 333, 1000), (0.01, 0.05, 0.1, 0.3)),
    (5000, 0.05),
]


@pytest.mark.parametrize("pace", ["front", "even", 0.5])
@pytest.mark.parametrize("kind", ["mixed", "sorted", "falling scores", "one score", "nobody answers"])
@pytest.mark.parametrize("explore", [0.0, 0.2])
def test_all_of_a_budget_is_spent_half_of_it_by_half_of_the_stream_and_never_more(pace, kind, explore):
    for seed, (length, rate) in enumerate(SPENT):
        rng = np.random.default_rng(seed)
        labels = rng.integers(10, size=length)
        scores = {"falling scores": np.arange(length, 0, -1), "one score": np.ones(length)}.get(
            kind, rng.random(length)
        )
        policy = make_policy(
            "paced", rate=rate, pace=pace, expected=length, explore=explore, seed=seed, classes=10
        )
        asked = []
        for score, label in zip(scores, np.sort(labels) if kind == "sorted" else labels, strict=True):
            asked.append(policy.decide(float(score)).ask)
            if asked[-1] and kind != "nobody answers":
                policy.answer(int(label))
        budget = math.ceil(rate * length - 1e-9)
        assert sum(asked) == budget, (length, rate, seed)
        assert sum(asked[: (length + 1) // 2]) >= budget / 2, (length, rate, seed)


@pytest.mark.parametrize("pace", ["front", 0.3])
def test_a_pace_without_a_known_end_is_even(pace):
    scores = np.random.default_rng(3).normal(size=300).tolist()
    one, other = Paced(0.1, pace=pace), Paced(0.1)
    assert [one.decide(score) for score in scores] == [other.decide(score) for score in scores]


@pytest.mark.parametrize("pace", ["front", "even", 0.3])
def test_a_pace_goes_on_where_it_was_saved(pace):
    rng = np.random.default_rng(1)
    one, other = (make_policy("paced", rate=0.1, pace=pace, expected=300, explore=0.2) for _ in range(2))
    follow(one, rng.integers(5, size=120), rng)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for score in rng.normal(size=250).tolist():
        found = one.decide(score)
        assert found == other.decide(score)
        if found.ask:
            one.answer(int(score > 0))
            other.answer(int(score > 0))


@pytest.mark.parametrize("pace", ["slow", 0.0, 1.5, True])
def test_other_paces_are_refused(pace):
    with pytest.raises(SettingsError, match=r"pace is .*; it must be even, front, or a number above 0"):
        method_settings("view_ensemble+", {"pace": pace})


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.1, 0.2])
def test_a_fifth_of_the_budget_is_left_for_what_comes_after_the_early_questions(rate: float) -> None:
    chance = np.random.default_rng(0)
    policy = make_policy("paced", rate=rate, pace="front", expected=1000, classes=5)
    put = []
    for _ in range(1000):
        put.append(policy.decide(chance.random()).ask)
        if put[-1]:
            policy.answer(int(chance.integers(5)))
    early = round(0.8 * rate * 1000 / 0.4)  # two images of five, up to four fifths of the budget
    assert rate * 1000 - 2 <= sum(put) <= rate * 1000
    halfway = (early + 1000) // 2
    assert sum(put[halfway:]) >= 0.4 * 0.2 * rate * 1000
