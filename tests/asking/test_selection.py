"""Whom to ask: the budget is exact, the scores mean what they say."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.asking.paced import Paced
from taps.asking.policy import make_policy
from taps.asking.rules import RULES, Acquisition, Candidate, narrowness
from taps.errors import SettingsError, StateError

STREAMS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "constant": lambda rng, n: np.ones(n),
    "falling": lambda rng, n: -np.arange(n, dtype=float),
    "rising": lambda rng, n: np.arange(n, dtype=float),
    "two values": lambda rng, n: rng.integers(2, size=n).astype(float),
}


@settings(max_examples=40)
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
    for score in np.random.default_rng(0).normal(size=200):
        policy.decide(float(score))
    assert policy.asked == 5
    with pytest.raises(SettingsError):
        Paced(0.001, window=10)


def test_the_margin_of_a_prediction():
    even, sure = np.full(4, 0.25), np.array([1.0, 0.0, 0.0, 0.0])
    assert (narrowness(even), narrowness(sure)) == (1.0, 0.0)


def test_narrowness_is_between_the_two_likeliest_of_many():
    for probs in np.random.default_rng(0).dirichlet(np.ones(3000), size=5):  # few numpy would sort whole
        *_, second, first = sorted(probs)
        assert narrowness(probs) == pytest.approx(1 - (first - second))


def known(entropy, probs, feature):
    """What a candidate is made of."""
    values = {"entropy": entropy, "probs": probs, "leverage": feature[0], "sensitivity": feature[1]}
    return {name: partial(np.array if name == "probs" else float, value) for name, value in values.items()}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_goes_on_where_it_was_saved(rule):
    rng = np.random.default_rng(0)
    told = [known(i, p, rng.normal(size=2)) for i, p in enumerate(rng.dirichlet(np.ones(3), size=80))]
    one, other = Acquisition(rule, seed=3), Acquisition(rule, seed=3)
    for each in told[:40]:
        one.score(**each)
    other.restore(json.loads(json.dumps(one.values())))
    assert [one.score(**each) for each in told[40:]] == [other.score(**each) for each in told[40:]]
    with pytest.raises(StateError):
        Acquisition("random" if rule != "random" else "margin", seed=3).restore(one.values())


def test_chance_follows_the_seed_a_state_was_begun_with():
    one, other = Acquisition("random", seed=3), Acquisition("random", seed=8)
    other.restore(one.values())
    assert [one.score() for _ in range(5)] == [other.score() for _ in range(5)]


def test_a_candidate_works_a_number_out_once_and_only_where_it_is_read():
    asked = []
    candidate = Candidate(leverage=lambda: asked.append("leverage") or 0.5, entropy=lambda: asked.append(1))
    assert (candidate.leverage, candidate.leverage, asked) == (0.5, 0.5, ["leverage"])
    with pytest.raises(SettingsError, match="'density'"):
        assert candidate.density
    with pytest.raises(AttributeError):
        assert candidate.colour


@pytest.mark.parametrize(("rate", "images", "asked"), [(0.07, 100, 7), (0.07, 101, 8), (0.28, 25, 7)])
def test_rounding_buys_no_question_of_an_exact_pace(rate, images, asked):
    """0.07 · 100 is a hair above 7 in binary. Scores rise, so that each is asked about where it may be."""
    policy = Paced(rate)
    assert sum(policy.decide(float(score)).ask for score in range(images)) == asked


def reference_pace(scores, allowed, rate, window):
    """The rule read off its description, with a sorted list of the last scores."""
    asked = seen = 0
    recent, threshold, decisions = [], math.inf, []
    for score, may in zip(scores, allowed, strict=True):
        if not abs(score) < 1e100:
            decisions.append((False, threshold))
            continue
        seen += 1
        recent = [*recent, score][-window:]
        due = rate * seen
        if asked >= math.ceil(due - 1e-9):
            decisions.append((False, math.inf))
            continue
        share = min(1.0, max(0.0, rate + (due - asked - 0.5) / (1 / rate)))
        above = math.floor(share * len(recent) + 1e-9)
        everything = due - asked >= 2 or above >= len(recent)
        threshold = -math.inf if everything else sorted(recent)[len(recent) - above - 1]
        ask = may and score > threshold
        asked += ask
        decisions.append((ask, threshold))
    return decisions, asked, seen


@pytest.mark.parametrize(
    ("rate", "window"),
    [(0.05, 200), (0.3, 7), (0.5, 2), (0.1, 50), (0.1, 10)],
)
@pytest.mark.parametrize("name", ["normal", "two values", "falling"])
def test_pace_is_the_rule_as_described(name, rate, window):
    rng = np.random.default_rng(7)
    scores = STREAMS[name](rng, 500).tolist()
    scores[100], scores[101], scores[250] = math.nan, -math.inf, 1e100
    allowed = (rng.random(500) < 0.8).tolist()
    policy = Paced(rate, window)
    decisions = [policy.decide(score, may) for score, may in zip(scores, allowed, strict=True)]
    expected, asked, seen = reference_pace(scores, allowed, rate, window)
    assert [(decision.ask, decision.threshold) for decision in decisions] == expected
    assert (policy.asked, policy.seen, policy.skipped) == (asked, seen, 3)


def test_pace_takes_a_twentieth_of_the_last_two_hundred_unless_told():
    state = Paced().state_dict()
    assert (state["asked"], state["seen"], state["skipped"]) == (0, 0, 0)
    plain, told = Paced(), Paced(rate=0.05, window=200)
    for score in np.random.default_rng(2).normal(size=450):
        assert plain.decide(score) == told.decide(score)
    assert (told.asked, told.seen) == (plain.asked, 450)


def test_a_window_must_hold_one_of_the_top():
    Paced(0.1, window=10)
    with pytest.raises(SettingsError, match=r"window=9 is too short to have a top 0\.1; use at least 10"):
        Paced(0.1, window=9)
    with pytest.raises(SettingsError, match=r"^window=-1 "):
        Paced(0.1, window=-1)


def test_pace_is_saved_before_and_after_its_first_threshold():
    for images in (0, 1, 30):
        one, other = Paced(0.1), Paced(0.1)
        for score in range(images):
            one.decide(float(score % 7))
        state = json.loads(json.dumps(one.state_dict(), allow_nan=False))
        other.decide(5.0)
        other.load_state_dict(state)
        assert other.state_dict() == one.state_dict()
        assert one.decide(math.nan) == other.decide(math.nan)


def gradient_form(probs, leverage):
    """g'A⁻¹g with A = I ⊗ G written out, where x'G⁻¹x is the leverage."""
    feature, gram = np.array([2.0, 0.0]), np.diag([4.0 / leverage, 1.0])
    off = probs - np.eye(len(probs))[probs.argmax()]
    whole = np.kron(np.eye(len(probs)), gram)
    gradient = np.kron(off, feature)
    return float(gradient @ np.linalg.solve(whole, gradient))


def test_rules_are_what_their_names_say():
    """Each rule on four images, against its own formula."""
    rng = np.random.default_rng(3)
    features, probs = rng.normal(size=(4, 2)), rng.dirichlet(np.ones(3), size=4)
    expected = {
        "random": [np.random.default_rng([9, i]).random() for i in range(4)],
        "entropy": [0.0, 0.1, 0.2, 0.3],
        "margin": [1 - (sorted(p)[2] - sorted(p)[1]) for p in probs],
        "confidence": [1 - max(p) for p in probs],
        "sensitivity": features[:, 1].tolist(),
        "vessal": [gradient_form(p, f[0]) for f, p in zip(features, probs, strict=True)],
    }
    assert expected.keys() <= set(RULES)
    for rule, wanted in expected.items():
        acquisition = Acquisition(rule, seed=9)
        found = [acquisition.score(**known(0.1 * i, probs[i], features[i])) for i in range(4)]
        assert found == pytest.approx(wanted), rule
        assert acquisition.values() == {"rule": rule, "seed": 9, "images": 4}


def test_a_share_of_the_images_is_asked_about_whatever_the_policy_says():
    policy = make_policy("fixed", tau0=1.0, rate=0.5, explore=0.8, seed=9)
    found = [policy.decide(entropy) for entropy in [0.0, 2.0] * 25]
    drawn = [bool(np.random.default_rng([9, image, 1]).random() < 0.4) for image in range(50)]
    assert [each.ask for each in found[::2]] == [each.random for each in found[::2]] == drawn[::2]
    assert {each.chance for each in found[::2]} == {0.4}
    assert {(each.ask, each.random, each.chance) for each in found[1::2]} == {(True, False, 1.0)}
    assert policy.asked == 25 + sum(drawn[::2])


def test_a_state_of_another_rule_is_refused():
    with pytest.raises(StateError, match=r"asks by 'entropy', this one by 'margin'\.$"):
        Acquisition("margin", 9).restore(Acquisition("entropy", 9).values())
