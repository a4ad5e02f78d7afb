"""What is learned from labels, against naive computations of the same in double precision."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.errors import SettingsError
from taps.head.arrays import softmax as probabilities
from taps.head.experts import Experts, HeadSettings
from taps.head.linear import UNKNOWN, Logistic, Ridge, with_constant


def pairs(count: int, dim: int, outputs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    xs = rng.normal(size=(count, dim))
    return xs / np.linalg.norm(xs, axis=1, keepdims=True), rng.normal(size=(count, outputs))


def solved(xs: np.ndarray, targets: np.ndarray, penalty: float) -> np.ndarray:
    return np.linalg.solve(xs.T @ xs + penalty * np.eye(xs.shape[1]), xs.T @ targets)


@settings(max_examples=30)
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


@pytest.mark.parametrize("penalty", [0.0, -1.0, float("nan"), float("inf")])
def test_ridge_refuses_penalties_that_cannot_be(penalty):
    with pytest.raises(SettingsError, match=r"^A ridge penalty of .* is not possible;"):
        Ridge(2, 2, penalty)


def test_ridge_grows_and_leaves_the_old_outputs_alone():
    xs, targets = pairs(5, 4, 2, seed=0)
    ridge = Ridge(4, 2, penalty=1.0)
    for x, target in zip(xs, targets, strict=True):
        ridge.add(x, target)
    before = ridge.weights.copy()
    ridge.grow(3)
    assert ridge.weights.shape == (4, 3)
    np.testing.assert_array_equal(ridge.weights[:, :2], before)
    assert not ridge.weights[:, 2].any()


def labelled(count: int, dim: int, classes: int, seed: int):
    rng = np.random.default_rng(seed)
    features, offsets = rng.normal(size=(count, dim)), rng.normal(size=(count, 2, classes))
    return features, offsets, rng.integers(classes, size=count)


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def scores(fit: Logistic, probe: np.ndarray, penalty: int, offset: int) -> np.ndarray:
    return fit.scores(with_constant(probe), ((penalty, offset),))[:, 0]


def minimised(inputs, offsets, labels, penalty, classes):
    """Newton's method on the penalised log-likelihood itself, all of it, until its gradient is nothing."""
    weights, target = np.zeros((inputs.shape[1], classes)), np.eye(classes)[labels]

    def loss(tried: np.ndarray) -> float:
        said = (softmax(offsets + inputs @ tried) * target).sum(axis=1)
        return float(penalty / 2 * (tried**2).sum() - np.log(said).sum())

    for _ in range(100):
        probs = softmax(offsets + inputs @ weights)
        gradient = inputs.T @ (probs - target) + penalty * weights
        hessian = penalty * np.eye(weights.size)
        for x, p in zip(inputs, probs, strict=True):
            hessian += np.kron(np.outer(x, x), np.diag(p) - np.outer(p, p))
        step = np.linalg.solve(hessian, gradient.ravel()).reshape(weights.shape)
        while loss(weights - step) > loss(weights) + 1e-12:
            step = step / 2
        weights = weights - step
    assert np.abs(gradient).max() < 1e-10
    return weights


@pytest.mark.parametrize("penalty", [0.03, 0.3, 3.0])
def test_logistic_fits_go_to_the_minimum(penalty):
    features, offsets, labels = labelled(12, 5, 3, seed=1)
    fit = Logistic(5, 3, 2, (penalty,), capacity=50, steps=3000)
    for feature, offset, label in zip(features, offsets, labels, strict=True):
        fit.add(feature, offset, int(label))
    probe = np.random.default_rng(2).normal(size=(4, 5))
    for which in range(2):
        inputs = with_constant(features)
        best = minimised(inputs, offsets[:, which], labels, penalty, 3)
        np.testing.assert_allclose(scores(fit, probe, 0, which), with_constant(probe) @ best, atol=1e-6)


def naive_steps(features, offsets, labels, penalty, classes, steps=2):
    """The same steps on the weights instead of the coefficients, from all labels so far."""
    weights = np.zeros((features.shape[1] + 1, classes))
    for count in range(1, len(labels) + 1):
        inputs, target = with_constant(features[:count]), np.eye(classes)[labels[:count]]
        curvature = 0.5 * inputs.T @ inputs + penalty * np.eye(inputs.shape[1])
        for _ in range(steps):
            probs = softmax(offsets[:count] + inputs @ weights)
            weights = weights + np.linalg.solve(curvature, inputs.T @ (target - probs) - penalty * weights)
    return weights


@settings(max_examples=20)
@given(st.integers(1, 25), st.integers(1, 8), st.integers(2, 5), st.integers(0, 1000))
def test_two_steps_a_label_on_coefficients_are_two_steps_on_weights(count, dim, classes, seed):
    features, offsets, labels = labelled(count, dim, classes, seed)
    fit = Logistic(dim, classes, 2, (0.03, 0.3), capacity=50)
    for feature, offset, label in zip(features, offsets, labels, strict=True):
        fit.add(feature, offset, int(label))
    probe = np.random.default_rng(seed).normal(size=(3, dim))
    for which, penalty in enumerate((0.03, 0.3)):
        weights = naive_steps(features, offsets[:, 1], labels, penalty, classes)
        np.testing.assert_allclose(scores(fit, probe, which, 1), with_constant(probe) @ weights, atol=1e-7)


def test_older_labels_keep_their_say_in_constant_memory():
    features, offsets, labels = labelled(40, 6, 3, seed=4)
    fit = Logistic(6, 3, 2, (0.3,), capacity=8)
    for count, (feature, offset, label) in enumerate(zip(features, offsets, labels, strict=True)):
        before = scores(fit, features, 0, 0)
        full = count >= 8
        if full:
            fit._evict()
            np.testing.assert_allclose(scores(fit, features, 0, 0), before, atol=1e-12)
        fit.add(feature, offset, int(label))
        assert len(fit.inputs) <= 8
    assert fit.weights.shape == (1, 2, 7, 3)


def test_every_step_lowers_the_loss():
    features, offsets, labels = labelled(30, 4, 3, seed=5)
    inputs, target = with_constant(features), np.eye(3)[labels]

    def loss(weights: np.ndarray) -> float:
        probs = softmax(offsets[:, 0] + inputs @ weights)
        return float(-np.log((probs * target).sum(axis=1)).sum() + 0.015 * (weights**2).sum())

    found = []
    for steps in range(1, 12):
        fit = Logistic(4, 3, 2, (0.03,), capacity=50, steps=0)
        for feature, offset, label in zip(features, offsets, labels, strict=True):
            fit.add(feature, offset, int(label))
        fit.steps = steps
        fit._refit()
        found.append(loss(inputs.T @ fit.coefficients[0, 0]))
    assert all(later < earlier for earlier, later in pairwise(found))


def test_classes_added_later_change_nothing_that_was_learned():
    features, offsets, labels = labelled(10, 4, 3, seed=6)
    fit = Logistic(4, 3, 2, (0.3,), capacity=6)
    for feature, offset, label in zip(features, offsets, labels, strict=True):
        fit.add(feature, offset, int(label))
    before = scores(fit, features, 0, 1)
    fit.grow(5)
    np.testing.assert_array_equal(scores(fit, features, 0, 1), np.pad(before, ((0, 0), (0, 2))))
    fit._refit()
    assert not fit.coefficients[..., 3:].any()
    for _ in range(5):
        fit.add(features[0], np.zeros((2, 5)), 4)
    assert scores(fit, features[:1], 0, 0).argmax() == 4


def test_the_prior_sums_to_one_and_most_of_it_is_on_the_bases():
    for features, bases in ((1, 1), (2, 2), (2, 3)):
        found = Experts((features, 4), bases, 5, HeadSettings())
        assert found.prior.sum() == pytest.approx(1.0)
        assert found.prior[: found.alone].sum() == pytest.approx(0.7)
        assert not len(found.strengths(range(found.alone)))
        assert not list(found.fits(np.ones((2, features, 4)), range(found.alone)))


def test_what_was_saved_or_restored_from_is_never_changed_by_learning_on():
    """States share arrays, so that keeping many costs little: each must stay what it was."""
    rng = np.random.default_rng(8)
    one, other = (Experts((2, 4), 2, 3, HeadSettings()) for _ in range(2))
    for _ in range(3):
        one.learn(rng.normal(size=(2, 4)), np.log(rng.dirichlet(np.ones(3), 2)), 1)
    saved = one.arrays()
    kept = {name: array.copy() for name, array in saved.items()}
    other.restore(saved)
    for learner, label in ((one, 0), (other, 2)):
        learner.learn(rng.normal(size=(2, 4)), np.log(rng.dirichlet(np.ones(3), 2)), label)
    for name, array in saved.items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)
    assert not np.array_equal(one.ridge.weights, other.ridge.weights)


@pytest.mark.parametrize(("bases", "ground"), [(1, 0), (2, 1), (3, 1)])
def test_readings_stand_on_the_bases_they_say(bases, ground):
    found = Experts((2, 4), bases, 5, HeadSettings())
    everyone, (given, changed) = range(len(found.prior)), found.factors
    assert found.strengths(everyone).tolist() == [[2.5], [16.0]]
    assert [part.shape for part in found.fits(np.ones((3, 2, 4)), everyone)] == [(3, 6, 5)] * 2
    ridged, fitted = given[found.alone : -12], given[-12:]
    np.testing.assert_array_equal(ridged, np.eye(bases)[[0, 0]])
    np.testing.assert_array_equal(fitted, np.eye(bases)[[ground] * 12])
    np.testing.assert_array_equal((given + changed)[-12:, ground], [0.0, 0.5, 1.0] * 4)
    assert not changed[:-12].any()


@pytest.mark.parametrize(("classes", "refitted"), [(5, 128), (101, 126), (300, 42), (1000, 32)])
def test_fewer_labels_of_many_classes_are_refitted(classes, refitted):
    found = Experts((2, 4), 1, classes, HeadSettings())
    assert [(type(fit.capacity), fit.capacity) for fit in found.logistic] == [(int, refitted)] * 2


def test_classes_added_later_are_unknown_to_labels_before_them():
    found = Experts((1, 4), 2, 5, HeadSettings())
    found.learn(np.ones((1, 4)), np.log(np.full((2, 3), 1 / 3)), 1)  # of three classes, two came later
    assert (found.logistic[0].offsets[:, :, 0, 3:] == UNKNOWN).all()
    assert (found.logistic[0].offsets[:, :, 0, :3] > UNKNOWN).all()
    found.grow(7)
    names = {"ridge.inverse", "ridge.weights"} | {
        f"logistic.0.{name}" for name in ("inputs", "offsets", "targets", "coefficients", "weights")
    }
    assert set(found.arrays()) == names
    assert found.ridge.weights.shape == (4, 7)
    assert found.logistic[0].targets.shape == (1, 7)


def test_every_feature_has_its_fit():
    found = Experts((2, 4), 1, 3, HeadSettings())
    with pytest.raises(ValueError, match="zip"):
        found.learn(np.ones((1, 4)), np.log(np.full((1, 3), 1 / 3)), 1)


def test_probabilities_of_logits_however_large_or_far_apart_the_rows():
    logits = np.array([[900.0, 901.0], [-2000.0, -2001.0]])
    high, low = 1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))
    np.testing.assert_allclose(probabilities(logits), [[low, high], [high, low]])


def test_growing_adds_classes_and_nothing_else():
    features, offsets, labels = labelled(9, 4, 3, seed=6)
    fit = Logistic(4, 3, 2, (0.1, 0.3), capacity=6)
    assert fit.weights.shape == (2, 2, 0, 3)
    for feature, offset, label in zip(features, offsets, labels, strict=True):
        fit.add(feature, offset, int(label))
    fit.grow(5)
    shapes = {name: array.shape for name, array in fit.arrays().items()}
    assert shapes == {
        "inputs": (6, 5),
        "offsets": (2, 2, 6, 5),
        "targets": (6, 5),
        "coefficients": (2, 2, 6, 5),
        "weights": (2, 2, 5, 5),
    }


def test_where_it_is_known_what_an_image_is_not_the_others_keep_their_odds():
    found, plain = Experts((1, 4), 1, 4, HeadSettings()), Ridge(4, 4, HeadSettings().ridge_penalty)
    feature, said = np.array([0.1, 0.7, 0.5, 0.5]), np.array([0.4, 0.3, 0.2, 0.1])
    found.learn(feature[None], np.log(said)[None], -1, no=(1, 3))
    plain.add(feature, np.array([2 / 3, 0.0, 1 / 3, 0.0]) - said)
    np.testing.assert_allclose(found.ridge.weights, plain.weights, atol=1e-12)


def test_offsets_hold_what_older_answers_add():
    """Those given with the answers, plus the weights' part; also from a state that had the first alone."""
    features, offsets, labels = labelled(20, 4, 3, seed=9)
    fit, other = (Logistic(4, 3, 2, (0.1, 0.3), capacity=6) for _ in range(2))
    for feature, offset, label in zip(features, offsets, labels, strict=True):
        fit.add(feature, offset, int(label))
    given = offsets[14:].transpose(1, 0, 2)
    np.testing.assert_allclose(fit.offsets, given + with_constant(features[14:]) @ fit.weights, atol=1e-12)
    other.restore(fit.arrays() | {"offsets": given})
    for learner in (fit, other):
        learner.add(features[0], offsets[0], 1)
    np.testing.assert_allclose(other.coefficients, fit.coefficients, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2])
def test_answers_that_are_refitted_no_more_keep_what_they_taught(rows):
    """Scores are those of the weights of all answers: the last three, and older ones as they were at last."""
    rng = np.random.default_rng(5)
    fit, older = Logistic(3, 4, 1, (0.3,), 3), np.zeros((4, 4))
    for turn in range(9):
        if len(fit.inputs) == 3:
            older += np.outer(fit.inputs[0], fit.coefficients[0, 0, 0])
        fit.add(rng.normal(size=3), rng.normal(size=(1, 4)), turn % 4)
        x = rng.normal(size=(rows, 3))
        expected = np.column_stack([x, np.full(rows, 0.1)]) @ (older + fit.inputs.T @ fit.coefficients[0, 0])
        np.testing.assert_allclose(scores(fit, x, 0, 0), expected, atol=1e-12)
    assert np.abs(older).max() > 0.01


def test_who_went_last_is_told_and_a_restored_fit_scores_alike():
    features, offsets, labels = labelled(5, 4, 3, seed=7)
    fit, other = (Logistic(4, 3, 2, (0.1, 0.3), capacity=3) for _ in range(2))
    assert fit.last_gone is None
    for turn in range(5):
        weights, oldest = fit.weights, fit.coefficients[:, :, :1]
        fit.add(features[turn], offsets[turn], int(labels[turn]))
    before, after, gone, taught = fit.last_gone
    np.testing.assert_array_equal(before, weights)
    np.testing.assert_array_equal(after, fit.weights)
    np.testing.assert_array_equal(gone, [*features[1], 0.1])
    np.testing.assert_array_equal(taught, oldest)
    scores(other, features, 1, 0)  # what was made before must not be kept
    other.restore(fit.arrays())
    np.testing.assert_array_equal(scores(other, features, 1, 0), scores(fit, features, 1, 0))
