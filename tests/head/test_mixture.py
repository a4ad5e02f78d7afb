"""Whom to believe: Bayes' rule, and the promise made for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.errors import SettingsError, StateError
from taps.head.mixture import Mixture


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


@pytest.mark.parametrize(("discount", "importance"), [(1.0, 0.25), (0.5, 1.0), (0.8, 0.6), (0.9, 0.0)])
def test_importance_and_discount_are_exponents_of_what_was_said(discount, importance):
    """A label counts by ω, by γ for every later one, and by γ once more for the one that is to come."""
    said, prior = np.array([[0.8, 0.2, 0.5], [0.1, 0.4, 0.6], [0.7, 0.7, 0.2]]), np.array([0.2, 0.3, 0.5])
    mixture = Mixture(prior, discount)
    mixture.learn(said[0])
    mixture.learn(said[1], importance)
    mixture.learn(said[2])
    belief = prior * said[0] ** discount**3 * said[1] ** (importance * discount**2) * said[2] ** discount
    np.testing.assert_allclose(mixture.weights(), belief / belief.sum(), rtol=1e-12)


def test_no_expert_is_silenced_for_good():
    mixture = Mixture(np.ones(2))
    mixture.learn(np.array([0.0, 0.5]))
    mixture.learn(np.array([float("nan"), 0.5]))
    assert (mixture.weights() > 0).all()


def test_a_mixture_goes_on_from_its_losses_and_refuses_those_of_another():
    losses = np.array([0.1, 0.2])
    mixture = Mixture(np.ones(2))
    mixture.restore(losses)
    mixture.learn(np.array([0.5, 0.5]))
    assert losses.tolist() == [0.1, 0.2]
    with pytest.raises(StateError):
        Mixture(np.ones(3)).restore(losses)


@pytest.mark.parametrize("discount", [0.0, -0.1, 1.001, 2.0, float("nan")])
def test_discounts_lie_above_0_and_up_to_1(discount):
    with pytest.raises(SettingsError, match=r"^A discount of .* cannot be;"):
        Mixture(np.ones(2), discount)


@pytest.mark.parametrize("prior", [[], [0.0, 1.0], [1.0, -1.0]])
def test_every_expert_has_a_prior(prior):
    with pytest.raises(SettingsError, match=r"^Every expert needs a prior weight above 0\.$"):
        Mixture(np.array(prior))


@pytest.mark.parametrize("importance", [-0.1, 1.001, 2.0, float("nan")])
def test_importances_lie_from_0_to_1(importance):
    with pytest.raises(SettingsError, match=r"^An importance of .* cannot be;"):
        Mixture(np.ones(2)).learn(np.array([0.5, 0.5]), importance)


def test_priors_are_normalised_and_weights_hold_however_large_the_losses():
    mixture = Mixture(np.array([3.0, 1.0]))
    np.testing.assert_allclose(np.exp(mixture.log_prior), [0.75, 0.25])
    np.testing.assert_allclose(mixture.weights(), [0.75, 0.25])
    mixture.restore(np.array([5001.0, 5000.0]))
    odds = 3 * np.exp(-1.0)
    np.testing.assert_allclose(mixture.weights(), [odds / (1 + odds), 1 / (1 + odds)])


def test_more_than_certain_is_certain():
    mixture, other = Mixture(np.ones(2)), Mixture(np.ones(2))
    mixture.learn(np.array([1.5, 0.5]))
    other.learn(np.array([1.0, 0.5]))
    np.testing.assert_array_equal(mixture.losses, other.losses)


def test_losses_of_another_mixture_are_refused_with_both_numbers():
    told = "^The saved head has 2 experts, this one 3; make it with the saved settings.$"
    with pytest.raises(StateError, match=told):
        Mixture(np.ones(3)).restore(np.zeros(2))
