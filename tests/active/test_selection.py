"""Whom to ask: the budget is exact, the scores mean what they say."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.active import SCORES, Chooser, Paced, Recent, entropy, narrowness, scarcity
from taps.active.policy import Capped, make_policy
from taps.errors import SettingsError, StateError

STREAMS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "constant": lambda rng, n: np.ones(n),
    "falling": lambda rng, n: -np.arange(n, dtype=float),
    "rising": lambda rng, n: np.arange(n, dtype=float),
    "two values": lambda rng, n: rng.integers(2, size=n).astype(float),
}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(STREAMS)),
    st.sampled_from([0.01, 0.05, 0.1, 0.5]),
    st.integers(0, 1000),
)
def test_the_budget_is_held_at_every_image(name, rate, seed):
    policy = Paced(rate)
    for score in STREAMS[name](np.random.default_rng(seed), 400):
        policy.decide(score)
        assert policy.asked <= math.ceil(rate * policy.seen - 1e-9)
        assert policy.asked >= rate * policy.seen - 2


def test_the_highest_scores_are_asked_about():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=3000)
    policy = Paced(0.05)
    asked = np.array([policy.decide(score).ask for score in scores])
    assert scores[asked].mean() > 1.5  # of the top twentieth itself it would be 2.06
    assert scores[asked].mean() > scores[~asked].mean() + 1.4


def test_pace_goes_on_where_it_was_saved_and_skips_what_is_no_number():
    rng = np.random.default_rng(1)
    one, other = Paced(0.1), Paced(0.1)
    for score in rng.normal(size=150):
        one.decide(score)
    one.decide(float("nan"))
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert (other.asked, other.seen, other.skipped) == (one.asked, 150, 1)
    for score in rng.normal(size=150):
        assert one.decide(score) == other.decide(score)
    with pytest.raises(StateError):
        other.load_state_dict({"kind": "dynamic"})


def test_pace_by_name_and_under_a_cap():
    policy = make_policy("paced", rate=0.2, budget=5)
    assert isinstance(policy, Capped)
    for score in np.random.default_rng(0).normal(size=200):
        policy.decide(float(score))
    assert policy.asked == 5
    with pytest.raises(SettingsError):
        Paced(0.001, window=10)


def test_scores_of_a_prediction():
    even, sure = np.full(4, 0.25), np.array([1.0, 0.0, 0.0, 0.0])
    assert entropy(even) == pytest.approx(math.log(4))
    assert entropy(sure) == 0
    assert (narrowness(even), narrowness(sure)) == (1.0, 0.0)
    counts = np.array([9.0, 0.0, 0.0, 0.0])
    assert scarcity(sure, counts) == pytest.approx(0.1)
    assert scarcity(np.array([0.0, 1.0, 0.0, 0.0]), counts) == 1.0


def test_density_is_the_mean_likeness_to_the_nearest_of_the_last():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 6))
    recent = Recent(6, size=20, neighbours=5)
    assert recent.density(features[0]) == 0.0
    for feature in features:
        recent.add(feature)
    probe = rng.normal(size=6)
    held = features[30:] - features[30:].mean(axis=0)
    away = probe - features[30:].mean(axis=0)
    cosines = held @ away / np.linalg.norm(held, axis=1) / np.linalg.norm(away)
    assert recent.density(probe) == pytest.approx(np.sort(cosines)[-5:].mean())


def run(chooser, features, probs, start, stop):
    counts = np.zeros(3)
    scores = []
    for i in range(start, stop):
        scores.append(chooser.score(features[i], probs[i], float(i % 7), counts, lambda x: float(abs(x[0]))))
    return scores


@pytest.mark.parametrize("rule", SCORES)
def test_every_rule_goes_on_where_it_was_saved(rule):
    rng = np.random.default_rng(0)
    features, probs = rng.normal(size=(80, 4)), rng.dirichlet(np.ones(3), size=80)
    one, other = Chooser(rule, 4, seed=3), Chooser(rule, 4, seed=3)
    run(one, features, probs, 0, 40)
    other.restore({k: v.copy() for k, v in one.arrays().items()}, json.loads(json.dumps(one.values())))
    assert run(one, features, probs, 40, 80) == run(other, features, probs, 40, 80)
    with pytest.raises(StateError):
        Chooser("random" if rule != "random" else "margin", 4, seed=3).restore(one.arrays(), one.values())


def test_chance_follows_the_seed_a_state_was_begun_with():
    one, other = Chooser("random", 4, seed=3), Chooser("random", 4, seed=8)
    other.restore(one.arrays(), one.values())
    nothing = (np.zeros(4), np.ones(3) / 3, 0.0, np.zeros(3), lambda x: 0.0)
    assert [one.score(*nothing) for _ in range(5)] == [other.score(*nothing) for _ in range(5)]


@pytest.mark.parametrize(("rate", "images", "asked"), [(0.07, 100, 7), (0.07, 101, 8), (0.28, 25, 7)])
def test_rounding_buys_no_question_of_an_exact_pace(rate, images, asked):
    """0.07 · 100 is a hair above 7 in binary. Scores rise, so that each is asked about where it may be."""
    policy = Paced(rate)
    assert sum(policy.decide(float(score)).ask for score in range(images)) == asked
