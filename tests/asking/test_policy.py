"""Policies against naive references that keep everything they have seen."""

import json
import math
import re
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.asking.base import Decision, check_rate
from taps.asking.dynamic import Dynamic
from taps.asking.paced import Paced
from taps.asking.policy import Fixed, Quantile, Random, make_policy
from taps.errors import SettingsError, StateError

BAD = [math.nan, math.inf, -math.inf]
# Thirds and tenths tie often and round badly; the floats seldom tie.
tied = st.sampled_from([0.0, 0.1, 0.3, 1 / 3, 0.7, 2.0, 2.1])
entropies = st.lists(st.one_of(tied, st.floats(0, 7), st.sampled_from(BAD)), max_size=120)
rates = st.sampled_from([0.01, 0.05, 0.1, 0.3, 0.5])


def capped(policy, rate=None, total=None):
    policy.cap(rate, total)
    return policy


MAKERS = {
    "dynamic": lambda: Dynamic(rate=0.2, warmup=3, tau0=0.5),
    "quantile": lambda: Quantile(rate=0.2, warmup=3, tau0=0.5),
    "window": lambda: Quantile(rate=0.2, warmup=3, tau0=0.5, window=7),
    "random": lambda: Random(rate=0.3, seed=4),
    "fixed": lambda: Fixed(0.3),
    "capped": lambda: capped(Dynamic(rate=0.2, warmup=3, tau0=0.5), rate=0.1),
}


def reference_threshold(past, asked, rate, warmup, tau0, switch_at):
    """Algorithm 1 read off the page: the threshold for the last of the finite entropies `past`."""
    t = len(past)
    if t < warmup:
        return tau0
    over_querying = asked / t >= (rate if switch_at is None else switch_at)
    z = statistics.NormalDist().inv_cdf(1 - rate / 2 if over_querying else 1 - rate)
    return np.mean(past) + z * (np.std(past, ddof=1) if t > 1 else 0.0)


@given(entropies, rates, st.integers(0, 40), st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from([None, 0.075]))
def test_dynamic_follows_algorithm_1(stream, rate, warmup, tau0, switch_at):
    policy = Dynamic(rate, warmup, tau0, switch_at)
    past, asked = [], 0
    for entropy in stream:
        decision = policy.decide(entropy)
        if not math.isfinite(entropy):
            assert not decision.ask
            continue
        past.append(entropy)
        expected = reference_threshold(past, asked, rate, warmup, tau0, switch_at)
        assert decision.threshold == pytest.approx(expected, abs=1e-12)
        # Not against `expected`: an entropy may equal its own threshold up to rounding.
        assert decision.ask == (entropy > decision.threshold)
        asked += decision.ask
    assert (policy.asked, policy.seen, policy.skipped) == (asked, len(past), len(stream) - len(past))


@pytest.mark.parametrize("switch_at", [None, 0.075])
def test_dynamic_asks_as_the_reference_does_on_a_long_stream(switch_at):
    rng = np.random.default_rng(0)
    stream = np.where(rng.random(3000) < 0.02, np.nan, rng.exponential(0.9, 3000)).tolist()
    policy = Dynamic(switch_at=switch_at)
    past, asked = [], 0
    for entropy in stream:
        ask = policy.decide(entropy).ask
        if math.isfinite(entropy):
            past.append(entropy)
            assert ask == (entropy > reference_threshold(past, asked, 0.05, 30, 2.0, switch_at))
            asked += ask
    assert asked > 100


def test_z_scores_are_those_of_the_paper():
    policy = Dynamic(rate=0.05)
    assert policy.z_selection == pytest.approx(1.644854, abs=1e-6)
    assert policy.z_high == pytest.approx(1.959964, abs=1e-6)


def test_warmup_ends_with_sample_t_min():
    policy = Dynamic(warmup=30, tau0=2.0)
    thresholds = [policy.decide(1.0 + 0.01 * t).threshold for t in range(1, 32)]
    assert thresholds[:29] == [2.0] * 29
    assert thresholds[29] != 2.0


def test_an_entropy_equal_to_the_threshold_is_not_asked():
    assert not Fixed(2.0).decide(2.0).ask
    assert not Dynamic(tau0=2.0).decide(2.0).ask
    policy = Dynamic(warmup=1)
    assert not any(policy.decide(0.7).ask for _ in range(100))  # no spread: the mean itself is the threshold


def reference_quantile(stream, rate, warmup, tau0, window):
    """Sorts the past again at every sample."""
    asked, past, asks = 0, [], []
    for entropy in stream:
        if not math.isfinite(entropy):
            asks.append(False)
            continue
        past.append(entropy)
        if len(past) < warmup:
            ask = entropy > tau0
        else:
            held = sorted(past if window is None else past[-window:])
            above = math.floor(rate * len(held) + 1e-9)
            threshold = held[len(held) - above - 1]
            ask = entropy > threshold or (entropy == threshold and asked < rate * len(past))
        asked += ask
        asks.append(ask)
    return asks


@given(entropies, rates, st.integers(0, 40), st.sampled_from([None, 100, 117]))
def test_quantile_is_the_quantile_of_a_sorted_past(stream, rate, warmup, window):
    policy = Quantile(rate, warmup, 2.0, window)
    assert [policy.decide(entropy).ask for entropy in stream] == reference_quantile(
        stream, rate, warmup, 2.0, window
    )


SHAPES = {
    "normal": lambda rng, n: 2 + 0.3 * rng.standard_normal(n),
    "exponential": lambda rng, n: rng.exponential(1.0, n),
    "uniform": lambda rng, n: rng.random(n),
    "bimodal": lambda rng, n: np.where(rng.random(n) < 0.1, 3.0, 0.5) + 0.1 * rng.standard_normal(n),
    "two values": lambda rng, n: rng.integers(2, size=n).astype(float),
    "constant": lambda rng, n: np.full(n, 0.7),
    "rounded": lambda rng, n: np.round(rng.exponential(1.0, n), 1),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("window", [None, 500])
def test_quantile_holds_the_rate_for_any_shape(shape, window):
    stream = SHAPES[shape](np.random.default_rng(1), 8000)
    policy = Quantile(0.05, warmup=30, tau0=9.0, window=window)
    for entropy in stream.tolist():
        policy.decide(entropy)
    assert policy.asked / policy.seen == pytest.approx(0.05, abs=0.005)


def test_a_window_keeps_the_rate_after_the_entropies_have_moved():
    rng = np.random.default_rng(2)
    stream = np.concatenate([3 + rng.random(4000), rng.random(4000)]).tolist()
    rates = {}
    for window in (None, 400):
        policy = Quantile(0.05, window=window, tau0=9.0)
        asks = [policy.decide(entropy).ask for entropy in stream]
        rates[window] = sum(asks[4500:]) / len(asks[4500:])
    assert rates[None] == 0.0  # all that was seen before is higher: nothing is ever asked again
    assert rates[400] == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("name", MAKERS)
@given(stream=entropies, stop=st.integers(0, 120))
def test_a_stream_stopped_and_resumed_decides_the_same(name, stream, stop):
    unbroken = MAKERS[name]()
    expected = [unbroken.decide(entropy) for entropy in stream]
    first, second = MAKERS[name](), MAKERS[name]()
    decisions = [first.decide(entropy) for entropy in stream[:stop]]
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    decisions += [second.decide(entropy) for entropy in stream[stop:]]
    assert decisions == expected
    assert second.state_dict() == unbroken.state_dict()


@pytest.mark.parametrize("name", MAKERS)
@given(stream=entropies)
def test_non_finite_entropies_leave_no_trace(name, stream):
    with_bad, without = MAKERS[name](), MAKERS[name]()
    decisions = [with_bad.decide(entropy) for entropy in stream]
    clean = [without.decide(entropy) for entropy in stream if math.isfinite(entropy)]
    kept = [d for d, entropy in zip(decisions, stream, strict=True) if math.isfinite(entropy)]
    assert kept == clean
    assert not any(d.ask for d, entropy in zip(decisions, stream, strict=True) if not math.isfinite(entropy))
    assert with_bad.skipped == len(stream) - len(clean)
    assert (with_bad.asked, with_bad.seen) == (without.asked, without.seen)


def test_a_skipped_sample_carries_the_threshold_last_used():
    policy = Dynamic(warmup=2, tau0=2.0)
    assert policy.decide(math.nan) == Decision(False, 2.0)
    policy.decide(1.0)
    last = policy.decide(1.5).threshold
    assert policy.decide(math.inf) == Decision(False, last)


def test_one_absurd_entropy_does_not_end_all_asking():
    policy = Dynamic(warmup=1)
    for entropy in [1e308, -1e308, *np.random.default_rng(0).exponential(size=500).tolist()]:
        policy.decide(entropy)
    assert policy.skipped == 2
    assert policy.asked > 0
    assert math.isfinite(policy.std)


@pytest.mark.parametrize("name", MAKERS)
@given(stream=entropies)
def test_nothing_is_asked_where_it_is_not_allowed(name, stream):
    policy = MAKERS[name]()
    assert not any(policy.decide(entropy, allowed=False).ask for entropy in stream)
    assert policy.asked == 0
    assert policy.seen == sum(map(math.isfinite, stream))


@given(stream=entropies, rate=rates, total=st.one_of(st.none(), st.integers(0, 10)))
def test_a_hard_budget_is_never_exceeded_and_used_where_it_can_be(stream, rate, total):
    policy = capped(Fixed(0.3), rate, total)
    asked = seen = 0
    for entropy in stream:
        seen += math.isfinite(entropy)
        ask = policy.decide(entropy).ask
        limit = math.ceil(round(rate * seen, 9))
        limit = limit if total is None else min(limit, total)
        assert ask == (math.isfinite(entropy) and entropy > 0.3 and asked < limit)
        asked += ask
        assert asked <= limit
    assert policy.asked == asked


def test_a_cap_does_not_blind_the_policy():
    """Statistics go on over samples that could not be asked about."""
    stream = np.random.default_rng(3).exponential(size=300).tolist()
    free, bound = Dynamic(), capped(Dynamic(), total=0)
    for entropy in stream:
        free.decide(entropy)
        bound.decide(entropy)
    assert bound.mean == free.mean
    assert bound.asked == 0


def test_random_asks_at_its_rate_and_differs_by_seed():
    asks = {
        seed: [policy.decide(1.0).ask for _ in range(4000)]
        for seed in (1, 2)
        if (policy := Random(0.1, seed))
    }
    assert sum(asks[1]) / 4000 == pytest.approx(0.1, abs=0.02)
    assert asks[1] != asks[2]
    shared = Random(0.1, np.random.default_rng(1))
    assert [shared.decide(1.0).ask for _ in range(4000)] == asks[1]


@pytest.mark.parametrize("budget", ["soft", "hard"])
@pytest.mark.parametrize("name", ["dynamic", "quantile", "random", "paced"])
def test_a_rate_of_one_asks_about_every_image(name, budget):
    policy = make_policy(name, rate=1.0, budget=budget)
    assert all(policy.decide(entropy).ask for entropy in (0.0, 0.1, 3.0, 0.1, 0.0) * 20)
    assert policy.asked == policy.seen == 100


def test_numpy_entropies_leave_plain_numbers_in_the_state():
    policy = Dynamic(warmup=1, tau0=0.1)
    for entropy in np.random.default_rng(0).exponential(size=50).astype(np.float32):
        assert type(policy.decide(entropy).ask) is bool
    json.dumps(policy.state_dict())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"name": "oracle"}, "Unknown policy 'oracle'; use one of dynamic, fixed"),
        ({"name": "dynamic", "rate": 0.0}, "rate=0.0 is not a rate;"),
        ({"name": "dynamic", "rate": 1.1}, "rate=1.1 is not a rate;"),
        ({"name": "fixed", "rate": -0.1}, "rate=-0.1 is not a rate;"),
        ({"name": "dynamic", "rate": math.nan}, "rate=nan is not a rate;"),
        ({"name": "dynamic", "switch_at": 7.5}, "switch_at=7.5 is not a rate;"),
        ({"name": "dynamic", "warmup": -1}, "warmup=-1 is not a count;"),
        ({"name": "dynamic", "warmup": 2.5}, "warmup=2.5 is not a count;"),
        ({"name": "quantile", "warmup": -1}, "warmup=-1 is not a count;"),
        ({"name": "dynamic", "tau0": math.nan}, "tau0=nan is not a threshold;"),
        ({"name": "fixed", "tau0": math.inf}, "tau0=inf is not a threshold;"),
        ({"name": "dynamic", "tau0_relative": 0.5}, "tau0_relative=0.5 needs the number of classes;"),
        ({"name": "fixed", "tau0_relative": 0.5, "classes": 0}, "tau0_relative=0.5 needs the number"),
        ({"name": "fixed", "tau0_relative": math.nan, "classes": 2}, "tau0_relative=nan is not a threshold;"),
        ({"name": "dynamic", "budget": "harsh"}, "budget='harsh' is not a budget;"),
        ({"name": "dynamic", "budget": -1}, "budget=-1 is not a budget;"),
        ({"name": "dynamic", "budget": True}, "budget=True is not a budget;"),
    ],
)
def test_bad_settings_are_refused(settings, sentence):
    with pytest.raises(SettingsError, match=f"^{re.escape(sentence)}"):
        make_policy(**settings)


@pytest.mark.parametrize("policy", [Quantile, Paced])
@pytest.mark.parametrize(
    ("window", "sentence"),
    [
        (19, "window=19 is too short to have a top 0.05; use at least 20."),
        (-1, "window=-1 is not a count;"),
    ],
)
def test_a_window_without_a_top_is_refused(policy, window, sentence):
    with pytest.raises(SettingsError, match=f"^{re.escape(sentence)}"):
        policy(window=window)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"rate": 2.0}, "rate=2.0 is not a rate;"),
        ({"total": -1}, "total=-1 is not a count;"),
    ],
)
def test_a_cap_needs_a_limit_that_can_be(settings, sentence):
    with pytest.raises(SettingsError, match=f"^{re.escape(sentence)}"):
        Fixed(1.0).cap(**settings)


def test_fixed_thresholds_are_numbers_and_2_unless_told():
    assert Fixed().decide(2.0) == Decision(False, 2.0)
    with pytest.raises(SettingsError, match=r"^threshold=nan is not a threshold;"):
        Fixed(math.nan)


@pytest.mark.parametrize(("budget", "asked"), [("soft", 40), ("hard", 2), (10, 10), (0, 0)])
def test_make_policy_caps_as_the_budget_asks(budget, asked):
    policy = make_policy("fixed", tau0=1.0, budget=budget)
    assert sum(policy.decide(2.0).ask for _ in range(40)) == asked


@pytest.mark.parametrize(
    ("name", "kind"), [("dynamic", Dynamic), ("quantile", Quantile), ("random", Random), ("fixed", Fixed)]
)
def test_make_policy_knows_the_names(name, kind):
    assert isinstance(make_policy(name), kind)


@pytest.mark.parametrize("name", ["dynamic", "quantile", "random", "fixed"])
def test_a_state_of_another_policy_is_refused(name):
    saved = {"kind": "another"}
    sentence = f"The saved policy is 'another', not '{name}'; load it into one of its own kind."
    with pytest.raises(StateError, match=f"^{re.escape(sentence)}$"):
        make_policy(name).load_state_dict(saved)
    assert make_policy(name).state_dict()["kind"] == name


@pytest.mark.parametrize(("rate", "samples", "asked"), [(0.07, 100, 7), (0.07, 101, 8), (0.29, 200, 58)])
def test_rounding_buys_no_question(rate, samples, asked):
    """0.07 · 100 is a hair above 7 in binary, and an eighth question it is not."""
    policy = capped(Fixed(threshold=0.0), rate)
    assert sum(policy.decide(1.0).ask for _ in range(samples)) == asked


def test_rounding_takes_no_sample_from_the_top():
    """0.29 · 100 is a hair below 29 in binary; 29 of a hundred samples lie above the quantile even so."""
    policy = Quantile(rate=0.29, warmup=1)
    order = np.random.default_rng(0).permutation(99)
    for entropy in [*(order + 1.0), 0.0]:
        decision = policy.decide(entropy)
    assert decision.threshold == 70.0  # of 0, 1, … 99, those from 71 on are above it


def test_the_ends_of_what_is_taken():
    lowest = make_policy("fixed", tau0_relative=0.5, classes=1)  # ln 1 is 0
    assert lowest.decide(0.1) == Decision(True, 0.0, 1.0)
    policy = Fixed(1.0)
    assert [policy.decide(value).ask for value in (1e100, 9.9e99, -1e100)] == [False, True, False]
    assert (policy.seen, policy.skipped) == (1, 2)


RELATIVE = {"tau0_relative": 0.4, "classes": 7}


@pytest.mark.parametrize(
    ("settings", "make"),
    [
        ({"name": "dynamic"}, lambda: Dynamic(0.05, 30, 2.0, 0.05)),
        ({"name": "dynamic"}, Dynamic),
        (
            {"name": "dynamic", "rate": 0.2, "warmup": 9, "switch_at": 0.3, **RELATIVE},
            lambda: Dynamic(0.2, 9, 0.4 * math.log(7), 0.3),
        ),
        ({"name": "quantile"}, lambda: Quantile(0.05, 30, 2.0, None)),
        ({"name": "quantile"}, Quantile),
        (
            {"name": "quantile", "rate": 0.2, "warmup": 40, **RELATIVE},
            lambda: Quantile(0.2, 40, 0.4 * math.log(7)),
        ),
        ({"name": "random"}, lambda: Random(0.05, 0)),
        ({"name": "random"}, Random),
        ({"name": "random", "rate": 0.3, "seed": 5}, lambda: Random(0.3, 5)),
        ({"name": "fixed"}, lambda: Fixed(2.0)),
        ({"name": "fixed", "tau0": 0.7}, lambda: Fixed(0.7)),
        ({"name": "paced"}, lambda: Paced(0.05, 200)),
        ({"name": "paced", "rate": 0.006}, lambda: Paced(0.006, 334)),
        ({"name": "fixed", "tau0": 0.7, "rate": 0.1, "budget": "hard"}, lambda: capped(Fixed(0.7), 0.1)),
        ({"name": "fixed", "tau0": 0.7, "budget": 4}, lambda: capped(Fixed(0.7), total=4)),
    ],
)
def test_a_policy_by_name_decides_as_the_one_made_by_hand(settings, make):
    stream = np.random.default_rng(1).exponential(1.2, size=700).tolist()
    stream[3] = stream[333] = math.nan
    named, by_hand = make_policy(**settings), make()
    decisions = [named.decide(entropy) for entropy in stream]
    assert decisions == [by_hand.decide(entropy) for entropy in stream]
    assert {type(decision.ask) for decision in decisions} == {bool}
    assert (named.asked, named.seen, named.skipped) == (sum(d.ask for d in decisions), 698, 2)
    assert named.state_dict() == by_hand.state_dict()


def test_skipped_samples_and_coins_have_a_threshold_too():
    for policy, threshold in (
        (Dynamic(tau0=1.5), 1.5),
        (Quantile(tau0=1.5), 1.5),
        (Random(0.5), 0.0),
        (Fixed(1.5), 1.5),
    ):
        decision = policy.decide(math.nan)
        assert decision.ask is False
        assert decision == Decision(False, threshold)
    coins = [Random(0.5).decide(1.0) for _ in range(3)]
    assert {coin.threshold for coin in coins} == {0.0}


def test_the_share_from_which_on_it_is_stricter_belongs_to_the_stricter_side():
    policy = Dynamic(rate=0.5, warmup=2, tau0=0.5)
    assert policy.rate == 0.5
    assert policy.decide(1.0).ask
    threshold = policy.decide(0.2).threshold  # one of two asked: just half, so the top quarter counts
    assert threshold == pytest.approx(0.6 + 0.6744898 * math.sqrt(0.32))


def test_entropies_all_the_same_are_asked_about_at_the_rate_exactly():
    policy = Quantile(rate=0.25, warmup=1)
    asked = [t for t in range(1, 101) if policy.decide(0.7).ask]
    assert asked == list(range(1, 101, 4))


def test_all_of_a_stream_is_summarised_and_a_window_is_kept():
    for window, kept in ((None, {"rows", "until_merge"}), (30, {"recent"})):
        state = Quantile(window=window).state_dict()
        (quantiles,) = [value for value in state.values() if isinstance(value, dict)]
        assert set(quantiles) == kept


@pytest.mark.parametrize(
    ("tau0", "relative", "classes", "nats"),
    [
        (None, None, None, 2.0),
        (None, None, 7, 0.4 * math.log(7)),
        (1.5, None, 7, 1.5),
        (None, 0.5, 7, 0.5 * math.log(7)),
        (1.5, 0.5, 7, 0.5 * math.log(7)),
    ],
)
@pytest.mark.parametrize("name", ["dynamic", "quantile", "fixed"])
def test_the_first_threshold_follows_the_classes_unless_given(name, tau0, relative, classes, nats):
    policy = make_policy(name, tau0=tau0, tau0_relative=relative, classes=classes)
    assert policy.decide(0.0).threshold == pytest.approx(nats)


def test_a_rate_of_all_is_taken_only_where_all_may_be_meant():
    assert check_rate(1.0, every=True) == 1.0
    for refused in ({"rate": 1.0}, {"rate": 1.5, "every": True}, {"rate": 0.0, "every": True}):
        with pytest.raises(SettingsError, match=r"^rate="):
            check_rate(**refused)


@pytest.mark.parametrize("policy", [Dynamic, Quantile])
def test_a_first_threshold_that_is_no_number_is_refused_by_name(policy):
    with pytest.raises(SettingsError, match=r"^tau0=nan is not a threshold"):
        policy(tau0=math.nan)
