"""The vectorised policies against those of `taps.asking`; Proposition 2 where it holds and where it fails."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rate import (
    MEAN,
    SHAPES,
    STD,
    draw_entropies,
    expected_rate_under_switch,
    limit_rate,
    simulate_dynamic,
    simulate_quantile,
)

from taps.asking.dynamic import Dynamic
from taps.asking.policy import Quantile

STEADY = [shape for shape in SHAPES if not shape.endswith("std")]


def asks(policy, stream):
    return [policy.decide(entropy).ask for entropy in stream.tolist()]


@given(
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from([0.02, 0.05, 0.3]),
    st.integers(0, 40),
    st.sampled_from([None, 0.075]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_dynamic_decides_as_the_policy_does(shape, rate, warmup, switch_at, hard, seed):
    entropies = draw_entropies(np.random.default_rng(seed), shape, 150, 3)
    trace = simulate_dynamic(entropies, rate, warmup, 1.5, switch_at, hard)
    for stream in range(3):
        policy = Dynamic(rate, warmup, 1.5, switch_at)
        policy.cap(rate if hard else None)
        assert trace.asks[:, stream].tolist() == asks(policy, entropies[:, stream])


def test_strict_is_where_the_policy_uses_the_higher_z():
    entropies = draw_entropies(np.random.default_rng(0), "exponential", 400, 1)
    trace = simulate_dynamic(entropies)
    policy = Dynamic()
    for t, entropy in enumerate(entropies[:, 0].tolist(), start=1):
        threshold = policy.decide(entropy).threshold
        if t >= 30:
            z = (threshold - policy.mean) / policy.std
            assert trace.strict[t - 1, 0] == (abs(z - policy.z_high) < 1e-9)


@given(
    st.sampled_from(sorted(SHAPES)),
    st.sampled_from([0.02, 0.05, 0.3]),
    st.integers(0, 40),
    st.sampled_from([None, 50, 77]),
    st.integers(0, 2**32),
)
def test_quantile_decides_as_the_policy_does(shape, rate, warmup, window, seed):
    entropies = draw_entropies(np.random.default_rng(seed), shape, 150, 3)
    trace = simulate_quantile(entropies, rate, warmup, 1.5, window)
    for stream in range(3):
        policy = Quantile(rate, warmup, 1.5, window)
        assert trace.asks[:, stream].tolist() == asks(policy, entropies[:, stream])


@pytest.mark.parametrize("shape", STEADY)
def test_steady_shapes_have_the_mean_and_deviation_they_should(shape):
    entropies = draw_entropies(np.random.default_rng(0), shape, 2000, 50)
    assert entropies.mean() == pytest.approx(MEAN, abs=0.02)
    # Rounding to whole deviations adds a twelfth of one to the variance.
    assert entropies.std() == pytest.approx(STD * (np.sqrt(13 / 12) if shape == "rounded" else 1), rel=0.02)


def test_normal_entropies_are_asked_about_a_little_below_the_rate_under_the_printed_switch():
    entropies = draw_entropies(np.random.default_rng(0), "normal", 2000, 400)
    printed = simulate_dynamic(entropies).rate_after(2000).mean()
    appendix = simulate_dynamic(entropies, switch_at=0.075).rate_after(2000).mean()
    assert printed == pytest.approx(expected_rate_under_switch(0.05, 2000), abs=0.001)
    assert appendix == pytest.approx(0.05, abs=0.001)


@pytest.mark.parametrize(
    ("shape", "share", "strict"),
    [
        ("exponential", np.exp(-1 - 1.644854), np.exp(-1 - 1.959964)),
        ("uniform", (1 - 1.644854 / np.sqrt(3)) / 2, 0.0),
        ("bimodal, 10 %", 0.1, 0.1),
    ],
)
@pytest.mark.parametrize("switch_at", [0.05, 0.075])
def test_other_shapes_are_asked_about_at_the_limit_their_tails_give(shape, share, strict, switch_at):
    entropies = draw_entropies(np.random.default_rng(0), shape, 4000, 100)
    late = simulate_dynamic(entropies, switch_at=switch_at).asks[2000:].mean()
    assert late == pytest.approx(limit_rate(switch_at, share, strict), abs=0.0025)


@pytest.mark.parametrize("shape", STEADY)
def test_the_quantile_holds_the_rate_on_every_steady_shape(shape):
    entropies = draw_entropies(np.random.default_rng(0), shape, 2000, 40)
    assert simulate_quantile(entropies).asks.mean() == pytest.approx(0.05, abs=0.003)


def test_drifting_entropies_break_the_rate_of_both_and_a_window_mends_it():
    for shape, too_high in (("rising 2 std", True), ("falling 2 std", False)):
        entropies = draw_entropies(np.random.default_rng(0), shape, 3000, 20)
        for trace in (simulate_dynamic(entropies), simulate_quantile(entropies)):
            rate = trace.asks.mean()
            assert rate > 0.06 if too_high else rate < 0.03
        assert simulate_quantile(entropies, window=300).asks.mean() == pytest.approx(0.05, abs=0.012)
