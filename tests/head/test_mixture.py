"""Whom to believe: Bayes' rule, and the promise made for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.errors import SettingsError, StateError
from taps.head.mixture import Mixture


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 10_000))
def test_the_promised_regret_holds(experts, labels, seed):
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(experts)) + 1e-9
    mixture = Mixture(prior)
    mixed, own = 0.0, np.zeros(experts)
    for _ in range(labels):
        given_to_label = np.clip(rng.uniform(0.001, 1.0, experts) ** rng.integers(1, 6), 1e-6, 1.0)
        mixed -= np.log(float(mixture.weights() @ given_to_label))
        mixture.learn(given_to_label)
        own -= np.log(given_to_label)
    assert (mixed - own <= -np.log(prior / prior.sum()) + 1e-9).all()


def test_mixture_is_bayes_rule():
    rng = np.random.default_rng(0)
    told = rng.uniform(0.1, 1.0, size=(7, 3))
    prior = np.array([0.5, 0.3, 0.2])
    mixture = Mixture(prior)
    for given_to_label in told:
        mixture.learn(given_to_label)
    posterior = prior * told.prod(axis=0)
    np.testing.assert_allclose(mixture.weights(), posterior / posterior.sum(), rtol=1e-9)


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


@pytest.mark.parametrize("prior", [[], [0.0, 1.0], [1.0, -1.0]])
def test_every_expert_has_a_prior(prior):
    with pytest.raises(SettingsError, match=r"^Every expert needs a prior weight above 0\.$"):
        Mixture(np.array(prior))


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
