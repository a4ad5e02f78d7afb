"""The head's closed forms against naive ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.errors import QueryError, SettingsError, StateError
from taps.head.mixture import Mixture
from taps.head.ridge import Ridge


def pairs(count: int, dim: int, outputs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(count, dim))
    return xs / np.linalg.norm(xs, axis=1, keepdims=True), rng.normal(size=(count, outputs))


def solved(xs: np.ndarray, targets: np.ndarray, penalty: float) -> np.ndarray:
    return np.linalg.solve(xs.T @ xs + penalty * np.eye(xs.shape[1]), xs.T @ targets)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40), st.integers(1, 12), st.integers(1, 5), st.sampled_from([0.1, 1.0, 30.0]))
def test_ridge_is_the_solution_of_the_normal_equations(count, dim, outputs, penalty):
    xs, targets = pairs(count, dim, outputs, seed=count)
    ridge = Ridge(dim, outputs, penalty)
    for x, target in zip(xs, targets, strict=True):
        ridge.add(x, target)
    np.testing.assert_allclose(ridge.weights, solved(xs, targets, penalty), atol=1e-10)
    probe = np.random.default_rng(1).normal(size=dim)
    expected = probe @ np.linalg.inv(xs.T @ xs + penalty * np.eye(dim)) @ probe
    assert ridge.leverage(probe) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(0, 10_000))
def test_ridge_forgets_as_if_it_had_never_learned(count, seed):
    xs, targets = pairs(count, 8, 3, seed)
    ridge = Ridge(8, 3, penalty=0.3)
    for x, target in zip(xs, targets, strict=True):
        ridge.add(x, target)
    rng = np.random.default_rng(seed)
    gone = rng.permutation(count)[: count // 2 + 1]
    for i in gone:
        ridge.remove(xs[i], targets[i])
    kept = np.setdiff1d(np.arange(count), gone)
    np.testing.assert_allclose(ridge.weights, solved(xs[kept], targets[kept], 0.3), atol=1e-8)
    assert ridge.count == len(kept)


def test_a_hundred_thousand_rank_one_steps_leave_no_trace():
    xs, targets = pairs(50, 6, 2, seed=3)
    ridge = Ridge(6, 2, penalty=1.0)
    for _ in range(1000):
        for x, target in zip(xs, targets, strict=True):
            ridge.add(x, target)
        for x, target in zip(xs, targets, strict=True):
            ridge.remove(x, target)
    assert np.abs(ridge.weights).max() < 1e-9
    np.testing.assert_allclose(ridge.inverse, np.eye(6), atol=1e-9)


def test_ridge_refuses_to_forget_what_it_never_learned():
    ridge = Ridge(2, 1, penalty=1.0)
    with pytest.raises(QueryError):
        ridge.remove(np.array([1.0, 0.0]), np.array([1.0]))
    ridge.add(np.array([1.0, 0.0]), np.array([1.0]))
    with pytest.raises(QueryError):
        ridge.remove(np.array([0.0, 1.0]), np.array([1.0]))


def test_ridge_grows_and_leaves_the_old_outputs_alone():
    xs, targets = pairs(5, 4, 2, seed=0)
    ridge = Ridge(4, 2, penalty=1.0)
    for x, target in zip(xs, targets, strict=True):
        ridge.add(x, target)
    before = ridge.weights.copy()
    ridge.grow(3)
    np.testing.assert_array_equal(ridge.weights[:, :2], before)
    assert not ridge.weights[:, 2].any()
    with pytest.raises(SettingsError):
        ridge.grow(1)


def test_ridge_goes_on_where_it_was_saved():
    xs, targets = pairs(6, 4, 2, seed=0)
    one, other = Ridge(4, 2, penalty=1.0), Ridge(4, 2, penalty=1.0)
    for x, target in zip(xs[:3], targets[:3], strict=True):
        one.add(x, target)
    other.restore(one.arrays(), one.count)
    for ridge in (one, other):
        for x, target in zip(xs[3:], targets[3:], strict=True):
            ridge.add(x, target)
    np.testing.assert_array_equal(one.weights, other.weights)
    with pytest.raises(StateError):
        Ridge(5, 2, penalty=1.0).restore(one.arrays(), 3)


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan"), float("inf")])
def test_ridge_refuses_penalties_that_cannot_be(penalty):
    with pytest.raises(SettingsError):
        Ridge(2, 2, penalty)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 40),
    st.sampled_from([1.0, 0.98, 0.7]),
    st.integers(0, 10_000),
)
def test_the_promised_regret_holds(experts, labels, discount, seed):
    rng = np.random.default_rng(seed)
    mixture = Mixture(np.ones(experts), discount)
    mixed, own = 0.0, np.zeros(experts)
    for _ in range(labels):
        given_to_label = rng.uniform(0.001, 1.0, experts) ** rng.integers(1, 6)
        given_to_label = np.clip(given_to_label, 1e-6, 1.0)
        importance = float(rng.choice([1.0, rng.uniform()]))
        loss = -np.log(float(mixture.weights() @ given_to_label))
        mixture.learn(given_to_label, importance)
        mixed = discount * mixed + importance * loss
        own = discount * own - importance * np.log(given_to_label)
    assert mixed - own.min() <= np.log(experts) + 1e-9


def test_mixture_is_bayes_rule_without_discount():
    rng = np.random.default_rng(0)
    told = rng.uniform(0.1, 1.0, size=(7, 3))
    prior = np.array([0.5, 0.3, 0.2])
    mixture = Mixture(prior)
    for given_to_label in told:
        mixture.learn(given_to_label)
    posterior = prior * told.prod(axis=0)
    np.testing.assert_allclose(mixture.weights(), posterior / posterior.sum(), rtol=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.sampled_from([1.0, 0.9]), st.integers(0, 1000))
def test_mixture_forgets_a_label(labels, discount, seed):
    rng = np.random.default_rng(seed)
    told = rng.uniform(0.05, 1.0, size=(labels, 4))
    gone = int(rng.integers(labels))
    whole, without = Mixture(np.ones(4), discount), Mixture(np.ones(4), discount)
    tokens = [whole.learn(row) for row in told]
    whole.forget(tokens[gone])
    for place, row in enumerate(told):
        without.learn(np.ones(4) if place == gone else row)  # a label that says nothing of anyone
    np.testing.assert_allclose(whole.weights(), without.weights(), rtol=1e-9)


def test_no_expert_is_silenced_for_good():
    mixture = Mixture(np.ones(2))
    mixture.learn(np.array([0.0, 0.5]))
    mixture.learn(np.array([float("nan"), 0.5]))
    assert (mixture.weights() > 0).all()
