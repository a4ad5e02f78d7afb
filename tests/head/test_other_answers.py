"""Answers other than a label, and several people, against the formulas written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.errors import StateError
from taps.head.experts import HeadSettings
from taps.head.head import Head
from taps.head.history import History
from taps.head.linear import Logistic
from taps.head.mixture import Mixture
from taps.head.out_of_class import OutOfClass
from taps.types import OUTSIDE
from tests.head.test_history import same, stream


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(0, 10_000))
def test_each_step_on_what_it_is_not_raises_the_likelihood_to_its_top(count, seed):
    """Steps never overshoot, and end where Σ ln(1 − p(no)) + Σ ln p(label) − λ/2‖W‖² has no slope."""
    rng = np.random.default_rng(seed)
    dim, classes, penalty = 3, 5, 0.3
    features, offsets = rng.normal(size=(count, dim)), rng.normal(size=(count, classes))
    told = [tuple(rng.permutation(classes)[: rng.integers(0, 4)].tolist()) for _ in range(count)]
    labels = rng.integers(classes, size=count)
    inputs = np.column_stack([features, np.full(count, 0.1)])

    def likelihood(weights):
        total = -penalty / 2 * float((weights**2).sum())
        for x, offset, no, label in zip(inputs, offsets, told, labels, strict=True):
            logits = offset + x @ weights
            p = np.exp(logits) / np.exp(logits).sum()
            total += np.log(1 - p[list(no)].sum()) if no else np.log(p[label])
        return total

    fit, found = Logistic(dim, classes, 1, (penalty,), 50, steps=1), []
    for x, offset, label, no in zip(features, offsets, labels, told, strict=True):
        fit.add(x, offset[None], int(label), no)
    for _ in range(1500):
        fit._refit()
        found.append(likelihood(inputs.T @ fit.coefficients[0, 0]))
    assert (np.diff(found) > -1e-9).all()
    weights = inputs.T @ fit.coefficients[0, 0]
    for place in itertools.product(range(dim + 1), range(classes)):
        nudge = np.zeros_like(weights)
        nudge[place] = 1e-4
        assert abs(likelihood(weights + nudge) - likelihood(weights - nudge)) / 2e-4 < 1e-3


def test_of_two_classes_not_one_is_the_other():
    rng = np.random.default_rng(0)
    fits = [Logistic(3, 2, 1, (0.3,), 50) for _ in range(2)]
    for label in (0, 1, 1, 0, 1):
        x, offset = rng.normal(size=3), rng.normal(size=(1, 2))
        fits[0].add(x, offset, label)
        fits[1].add(x, offset, -1, (1 - label,))
    np.testing.assert_array_equal(fits[0].coefficients, fits[1].coefficients)


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(0, 12), st.integers(0, 10_000))
def test_a_crowd_is_bayes_rule_over_every_choice_of_shares(people, answers, seed):
    rng = np.random.default_rng(seed)
    experts, shares = np.array([0.5, 0.3, 0.2]), 2
    annotators = Mixture(experts, shares)
    choices = list(itertools.product(range(shares), repeat=people))
    belief = {(r, each): experts[r] / len(choices) for r in range(3) for each in choices}
    for _ in range(answers):
        person, given_to_it = int(rng.integers(people)), rng.uniform(0.05, 1.0, size=(3, shares))
        annotators.learn(given_to_it.ravel(), person=person)
        belief = {(r, each): b * given_to_it[r, each[person]] for (r, each), b in belief.items()}
    total = sum(belief.values())
    for person in range(people):
        expected = np.zeros((3, shares))
        for (r, each), b in belief.items():
            expected[r, each[person]] += b / total
        np.testing.assert_allclose(annotators.weights(person), expected.ravel(), atol=1e-12)


def test_a_crowd_of_another_size_is_refused():
    with pytest.raises(StateError, match=r"6 experts, this one 4; make it with the saved settings\.$"):
        Mixture(np.ones(2), 2).restore(np.zeros((1, 6)), np.zeros(1))


def test_answers_without_a_name_are_the_first_persons():
    annotators = Mixture(np.ones(2), 2)
    annotators.learn(np.array([0.9, 0.5, 0.1, 0.5]))
    assert annotators.answers.tolist() == [1]
    np.testing.assert_array_equal(annotators.weights(), annotators.weights(0))
    assert np.abs(annotators.weights() - annotators.weights(1)).max() > 0.05
    before = annotators.losses[0].copy()
    annotators.learn(np.array([0.5, 0.25, 1.0, 0.125]))
    np.testing.assert_allclose((annotators.losses[0] - before) / np.log(2), [1.0, 2.0, 0.0, 3.0])


def test_readings_that_are_hopeless_leave_numbers_behind():
    """Losses so large that their exponentials are 0 in double precision."""
    annotators, prior = Mixture(np.array([0.75, 0.25]), 2), [0.375, 0.375, 0.125, 0.125]
    annotators.restore(np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2000.0, 2001.0]]), np.ones(2))
    np.testing.assert_allclose(annotators.weights(0), [0.5, 0.5, 0.0, 0.0], atol=1e-12)
    annotators.restore(np.full((1, 4), 2000.0), np.ones(1))
    np.testing.assert_allclose(annotators.weights(0), prior)


def test_who_errs_is_found_out_and_the_others_are_believed():
    """Ann is right, Bob names any class: the head's share for each, and its predictions."""
    rng = np.random.default_rng(1)
    head, alone = Head(4, 4, 1), Head(4, 4, 1)
    flat = np.log(np.full((1, 4), 0.25))
    for turn in range(120):
        label = turn % 4
        x = np.eye(4)[[label]] + 0.1 * rng.normal(size=(1, 4))
        answer, person = (label, 1) if turn % 3 else (int(rng.integers(4)), 2)
        head.learn(head.see(x, flat), answer, person=person)
        alone.learn(alone.see(x, flat), answer)
    assert head.noise_of(1) < 0.03 < 0.2 < head.noise_of(2)
    assert head.noise_of(1) < alone.noise < head.noise_of(2)
    assert head.mixture.answers.tolist() == [0, 80, 40]
    assert head.noise == pytest.approx((2 * head.noise_of(1) + head.noise_of(2)) / 3)


def test_as_many_answers_are_refitted_as_asked_for_up_to_64():
    assert [OutOfClass(2, refit).fits.capacity for refit in (5, 64, 500)] == [5, 64, 64]
    assert Head(2, 3, 1, settings=HeadSettings(refit=5)).outside.fits.capacity == 5


def test_outside_is_its_formula_written_out():
    """The share, two steps of each fit on all answers, and the mixture by what each said beforehand."""
    rng = np.random.default_rng(3)
    outside, weights, counts = OutOfClass(3), np.ones(3) / 3, np.zeros(2)
    seen: list[tuple[np.ndarray, int]] = []
    fits = {0.03: np.zeros((4, 2)), 0.3: np.zeros((4, 2))}
    start = np.array([0.0, -3.0])

    def softmax(rows):
        return np.exp(rows) / np.exp(rows).sum(axis=-1, keepdims=True)

    for turn in range(30):
        out = int(turn % 4 == 2)
        x = rng.normal(size=3) + 2 * out
        z = np.append(x, 0.1)
        chances = [
            (counts[1] + 0.5) / (counts.sum() + 1),
            *(softmax(start + z @ w)[1] for w in fits.values()),
        ]
        expected = float(weights @ chances) if counts[1] else 0.0
        assert outside.probability(x) == pytest.approx(expected, abs=1e-9)
        outside.learn(x, bool(out))
        weights = weights * (chances if out else 1 - np.array(chances))
        weights, counts = weights / weights.sum(), counts + np.eye(2)[out]
        seen.append((z, out))
        inputs, target = np.array([z for z, _ in seen]), np.eye(2)[[out for _, out in seen]]
        for penalty in fits:
            curvature = 0.5 * inputs.T @ inputs + penalty * np.eye(4)
            for _ in range(2):
                slope = (
                    inputs.T @ (target - softmax(start + inputs @ fits[penalty])) - penalty * fits[penalty]
                )
                fits[penalty] = fits[penalty] + np.linalg.solve(curvature, slope)
    assert outside.probability(np.full(3, 2.0)) > 0.8 > 0.1 > outside.probability(np.full(3, -1.0))


def test_none_of_these_says_nothing_about_the_classes():
    views, logs, labels = stream(30)
    heads = [Head(6, 4, 2, several=True) for _ in range(2)]
    for id in range(30):
        looks = [head.see(views[id], logs[id]) for head in heads]
        for head, look in zip(heads, looks, strict=True):
            if id % 3:
                head.learn(look, int(labels[id]))
        if id % 3 == 0:
            heads[0].learn(looks[0], OUTSIDE)
        np.testing.assert_array_equal(*(head.predict(look) for head, look in zip(heads, looks, strict=True)))
        assert heads[1].reject(looks[1]) == 0.0
    assert heads[0].reject(looks[0]) > 0.0
    assert heads[0].summary() == heads[1].summary()


def test_what_it_is_not_is_learned_and_counts_for_no_class():
    head = Head(5, 4, 1)
    flat, x = np.log(np.full((1, 4), 0.25)), np.eye(5)[[0]]
    for turn in range(12):
        head.learn(head.see(x, flat), -1, no=(1, 2))
        head.learn(head.see(np.eye(5)[[1 + turn % 4]], flat), turn % 4)
    said = head.predict(head.see(x, flat))
    assert said[[1, 2]].max() < 0.15 < 0.35 < said[[0, 3]].min()
    assert head.counts.tolist() == [3, 3, 3, 3]


def told(views, logs, labels, silent=()) -> History:
    """Every image is answered, in turn by a label, by what it is not, and that it is none of the classes."""
    history = History(Head(views.shape[2], logs.shape[2], 2, several=True), 100)
    for id, label in enumerate(labels.tolist()):
        look = history.head.see(views[id], logs[id])
        if id not in silent:
            no = (label, (label + 1) % 4) if id % 4 == 1 else ()
            history.learn(id, look, OUTSIDE if id % 4 == 3 else label, no, id % 3)
    return history


@settings(max_examples=8)
@given(st.integers(1, 60), st.integers(0, 1000))
def test_any_answer_taken_back_was_never_given_also_after_a_stop(count, seed):
    views, logs, labels = stream(count, seed=seed)
    gone = np.random.default_rng(seed).permutation(count)[: 1 + count // 8].tolist()
    amended = told(views, logs, labels)
    head = Head(6, 4, 2, several=True)
    head.restore({name: array.copy() for name, array in amended.head.arrays().items()})
    resumed = History(head, 100)
    resumed.restore({name: array.copy() for name, array in amended.arrays().items()})
    for id in gone:
        amended.forget(id)
        resumed.forget(id)
    same(amended, told(views, logs, labels, silent=gone))
    same(resumed, amended)
