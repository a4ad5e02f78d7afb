"""The head's closed forms against naive ones."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.errors import QueryError, SettingsError, StateError
from taps.head.examples import example_arrays, examples_from
from taps.head.head import Head, HeadSettings
from taps.head.mixture import Mixture
from taps.head.notes import notes_on
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


def test_what_a_ridge_or_a_mixture_was_restored_from_stays_as_it_was():
    xs, targets = pairs(2, 4, 2, seed=0)
    saved = Ridge(4, 2, penalty=1.0)
    saved.add(xs[0], targets[0])
    kept = {name: array.copy() for name, array in saved.arrays().items()}
    other = Ridge(4, 2, penalty=1.0)
    other.restore(saved.arrays(), saved.count)
    other.add(xs[1], targets[1])
    for name, array in saved.arrays().items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)
    losses = np.array([0.1, 0.2])
    mixture = Mixture(np.ones(2))
    mixture.restore(losses, 1)
    mixture.losses += 1.0
    assert losses.tolist() == [0.1, 0.2]


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


def test_a_label_of_no_importance_changes_the_ridges_and_not_the_trust():
    features, beliefs, _ = beliefs_and_features(1, 3, 4, seed=2)
    head = Head(4, 3, bases=2)
    before = head.mixture.weights()
    head.learn(features[0], beliefs[0], 1, importance=0.0)
    np.testing.assert_array_equal(head.mixture.weights(), before)
    assert head.labels == 1
    assert head.ridges[0].weights.any()


def test_no_expert_is_silenced_for_good():
    mixture = Mixture(np.ones(2))
    mixture.learn(np.array([0.0, 0.5]))
    mixture.learn(np.array([float("nan"), 0.5]))
    assert (mixture.weights() > 0).all()


def beliefs_and_features(count: int, classes: int, dim: int, seed: int, skill: float = 1.0):
    """A stream whose classes can be told from features better than from the beliefs."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, dim))
    labels = rng.integers(classes, size=count)
    features = centres[labels] + rng.normal(size=(count, dim))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    logits = rng.normal(size=(count, 2, classes)) + skill * np.eye(classes)[labels][:, None]
    return features, logits - np.log(np.exp(logits).sum(-1, keepdims=True)), labels


def naive_readings(settings, pairs_seen, feature, beliefs):
    rows = [sharp * base for sharp in settings.sharpness for base in beliefs]
    helped = []
    for row in rows:
        for strength in settings.strengths:
            for penalty in settings.penalties:
                score = 0.0
                if pairs_seen:
                    xs, targets = (np.array(part) for part in zip(*pairs_seen, strict=True))
                    score = feature @ solved(xs, targets, penalty)
                helped.append(row + strength * score)
    logits = np.array(rows + helped)
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def naive_prior(settings, bases):
    """By reading and share of wrong answers, written out; not normalised within the ridges' part."""
    alone = bases * len(settings.sharpness)
    ridged = [0.5**loud for loud in range(len(settings.strengths)) for _ in settings.penalties] * alone
    prior = [settings.alone / alone] * alone + [(1 - settings.alone) * each / sum(ridged) for each in ridged]
    return np.array([[each / len(settings.wrong)] * len(settings.wrong) for each in prior])


def test_head_is_the_mixture_written_out():
    features, beliefs, labels = beliefs_and_features(30, 4, 6, seed=0)
    head = Head(6, 4, bases=2)
    wrong = np.array(head.settings.wrong)
    seen, weights = [], naive_prior(head.settings, bases=2)
    for feature, belief, label in zip(features, beliefs, labels, strict=True):
        readings = naive_readings(head.settings, seen, feature, belief)
        weights = weights / weights.sum()
        np.testing.assert_allclose(head.predict(feature, belief), weights.sum(axis=1) @ readings, atol=1e-9)
        assert head.noise == pytest.approx(float((weights * wrong).sum()))
        answered = (1 - wrong) * readings[:, [label]] + wrong / 4
        right = float((weights * (1 - wrong) * readings[:, [label]]).sum() / (weights * answered).sum())
        weights = weights * np.clip(answered, 1e-6, 1)
        seen.append((feature, np.eye(4)[label] - np.exp(belief[0])))
        assert head.learn(feature, belief, int(label)).doubt == pytest.approx(1 - right)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_answers_are_predicted_as_well_as_by_any_reading(noise):
    """The stated regret, for the mixture that predicts answers; every reading with every share of noise."""
    features, beliefs, labels = beliefs_and_features(80, 5, 8, seed=8)
    rng = np.random.default_rng(8)
    head = Head(8, 5, bases=2)
    prior = head.mixture.weights()
    own, mixed = np.zeros(len(prior)), 0.0
    wrong = np.array(head.settings.wrong)
    for feature, belief, label in zip(features, beliefs, labels, strict=True):
        answer = int(rng.integers(5)) if rng.random() < noise else int(label)
        given = (head.readings(feature, belief)[:, [answer]] * (1 - wrong) + wrong / 5).ravel()
        mixed -= np.log(head.mixture.weights() @ given)
        own -= np.log(given)
        head.learn(feature, belief, answer)
    assert (mixed <= own - np.log(prior) + 1e-9).all()


def test_the_share_of_wrong_answers_is_found_out():
    found = []
    for noise in (0.0, 0.3):
        features, beliefs, labels = beliefs_and_features(300, 5, 12, seed=9, skill=4.0)
        rng, head = np.random.default_rng(9), Head(12, 5, bases=2)
        fooled = 0
        for feature, belief, label in zip(features[:100], beliefs, labels, strict=False):
            answer = (int(label) + 1) % 5 if rng.random() < noise else int(label)
            fooled += head.learn(feature, belief, answer).doubt > 0.5 and answer == label
        found.append(head.noise)
        assert fooled <= 10
    assert found[0] < 0.1
    assert found[1] > 0.2


def accuracy(head, features, beliefs, labels, answers):
    right = []
    for feature, belief, label, answer in zip(features, beliefs, labels, answers, strict=True):
        right.append(head.predict(feature, belief).argmax() == label)
        if answer is not None:
            head.learn(feature, belief, int(answer))
    return np.mean(right)


def test_labels_teach_and_trust_follows():
    features, beliefs, labels = beliefs_and_features(300, 5, 12, seed=1, skill=1.0)
    head = Head(12, 5, bases=2)
    answers = [label if i % 5 == 0 else None for i, label in enumerate(labels)]
    base = (beliefs[:, 0].argmax(1) == labels).mean()
    assert accuracy(head, features, beliefs, labels, answers) > base + 0.1
    assert head.trust > 0.9
    assert head.summary()["head_gain"] > 0.1


@pytest.mark.parametrize(("noise", "below"), [(0.2, 0.01), (0.4, 0.05)])
def test_wrong_answers_do_little_harm(noise, below):
    lost = []
    for seed in range(4):
        features, beliefs, labels = beliefs_and_features(400, 7, 12, seed=seed, skill=3.0)
        rng = np.random.default_rng(seed)
        wrong = rng.random(400) < noise
        answers = [
            None if i % 10 else int(rng.integers(7)) if wrong[i] else int(label)
            for i, label in enumerate(labels)
        ]
        base = (beliefs[:, 0].argmax(1) == labels).mean()
        lost.append(base - accuracy(Head(12, 7, bases=2), features, beliefs, labels, answers))
    assert np.mean(lost) < below


def test_contradicting_answers_for_one_image_cancel():
    features, beliefs, _ = beliefs_and_features(1, 3, 4, seed=2)
    head = Head(4, 3, bases=2)
    for _ in range(10):
        head.learn(features[0], beliefs[0], 0)
        head.learn(features[0], beliefs[0], 1)
    probs = head.predict(features[0], beliefs[0])
    assert abs(probs[0] - probs[1]) < 0.25
    assert probs[2] < probs[:2].min()


def test_one_class_alone_does_not_crush_the_others():
    features, beliefs, labels = beliefs_and_features(300, 5, 12, seed=3, skill=2.5)
    head = Head(12, 5, bases=2)
    answers = [0 if label == 0 else None for label in labels]
    others = labels != 0
    base = (beliefs[others, 0].argmax(1) == labels[others]).mean()
    accuracy(head, features, beliefs, labels, answers)
    after = np.mean(
        [
            head.predict(f, b).argmax() == y
            for f, b, y, o in zip(features, beliefs, labels, others, strict=True)
            if o
        ]
    )
    assert after > base - 0.12


def in_a_cone(features):
    """As a model's features are: all much alike, with one direction in common."""
    turned = features + 2.0 * np.eye(features.shape[1])[0]
    return turned / np.linalg.norm(turned, axis=1, keepdims=True)


@pytest.mark.parametrize("always", [True, False])
def test_answers_of_one_class_do_not_pull_every_image_to_it(always):
    """Of features in a cone a ridge that knows one class pulls all; the answers must not speak for that."""
    features, beliefs, labels = beliefs_and_features(400, 6, 12, seed=11, skill=3.0)
    features, head, right = in_a_cone(features), Head(12, 6, bases=2), []
    for i, (feature, belief, label) in enumerate(zip(features, beliefs, labels, strict=True)):
        head.see(belief)
        right.append(head.predict(feature, belief).argmax() == label)
        if (always and i % 10 == 0) or (not always and label == 2):
            head.learn(feature, belief, 2)
    base = (beliefs[:, 0].argmax(1) == labels).mean()
    assert head.labels >= 40
    assert np.mean(right) > base - 0.02
    assert head.fairness() < 0.01


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 100))
def test_fairness_is_the_share_of_pairs_that_differ(answers, seed):
    rng = np.random.default_rng(seed)
    head, shares = Head(2, 4, bases=1), rng.dirichlet(np.ones(4), 9)
    for share in shares:
        head.see(np.log(share)[None])
    for answer in answers:
        head.counts[answer] += 1
    stream = shares.mean(axis=0)
    expected = 1 - (stream**2).sum()
    pairs = [(a, b) for i, a in enumerate(answers) for b in answers[:i]]
    share = (sum(a != b for a, b in pairs) + 10 * expected) / (len(pairs) + 10)
    assert head.fairness() == pytest.approx(min(1.0, share / expected) ** 4)


def same_heads(one, other):
    """Everything that changes while learning, to nine places."""
    for name, array in one.arrays().items():
        np.testing.assert_allclose(array, other.arrays()[name], atol=1e-9, rtol=0, err_msg=name)
    assert one.numbers() == pytest.approx(other.numbers(), abs=1e-9)
    assert one.summary() == other.summary()


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 25), st.sampled_from([1.0, 0.9]), st.integers(0, 1000))
def test_a_label_taken_back_was_never_given(count, discount, seed):
    features, beliefs, labels = beliefs_and_features(count, 4, 6, seed=seed)
    grid = HeadSettings(discount=discount)
    whole, without = Head(6, 4, 2, grid), Head(6, 4, 2, grid)
    examples = [whole.learn(f, b, int(y), 0.7) for f, b, y in zip(features, beliefs, labels, strict=True)]
    rng = np.random.default_rng(seed)
    kept = list(range(count))
    for gone in rng.permutation(count)[: 1 + count // 3].tolist():
        place = kept.index(gone)
        examples[place:] = whole.forget(examples[place], examples[place + 1 :])
        kept.remove(gone)
    for place in kept:
        without.learn(features[place], beliefs[place], int(labels[place]), 0.7)
    same_heads(whole, without)
    assert len(examples) == len(kept)


def test_a_label_that_is_not_held_cannot_be_taken_back():
    features, beliefs, _ = beliefs_and_features(2, 4, 6, seed=4)
    head = Head(6, 4, bases=2)
    only = head.learn(features[0], beliefs[0], 1)
    head.forget(only)
    same_heads(head, Head(6, 4, bases=2))
    with pytest.raises(QueryError):
        head.forget(only)


def test_classes_added_later_are_learned_and_older_labels_can_still_be_taken_back():
    features, beliefs, labels = beliefs_and_features(20, 3, 6, seed=5)
    wider = np.log(np.concatenate([np.exp(beliefs) * 0.9, np.full((20, 2, 1), 0.1)], axis=2))
    heads = []
    for left_out in (None, 4):
        head, examples = Head(6, 3, bases=2), []
        for i in range(20):
            if i == 10:
                before = head.predict(features[0], beliefs[0])
                head.grow(4)
                np.testing.assert_allclose(head.predict(features[0], beliefs[0]), before, atol=1e-12)
            if i != left_out:
                told = (beliefs[i], int(labels[i])) if i < 10 else (wider[i], 3)
                examples.append(head.learn(features[i], *told))
        heads.append(head)
        if left_out is None:
            head.forget(examples[4], examples[5:])
    same_heads(*heads)
    assert heads[0].predict(features[15], wider[15]).argmax() == 3


def test_a_saved_head_of_fewer_classes_is_taken_in():
    features, beliefs, labels = beliefs_and_features(20, 3, 6, seed=5)
    one, other = Head(6, 3, bases=2), Head(6, 5, bases=2)
    for f, b, y in zip(features, beliefs, labels, strict=True):
        one.learn(f, b, int(y))
    other.restore(one.arrays(), one.numbers())
    one.grow(5)
    same_heads(one, other)
    with pytest.raises(StateError):
        Head(6, 4, bases=2).restore(one.arrays(), one.numbers())


def test_head_goes_on_where_it_was_saved():
    features, beliefs, labels = beliefs_and_features(30, 4, 6, seed=6)
    one, other = Head(6, 4, bases=2), Head(6, 4, bases=2)
    examples = OrderedDict((i, one.learn(features[i], beliefs[i], int(labels[i]))) for i in range(15))
    other.restore({name: array.copy() for name, array in one.arrays().items()}, one.numbers())
    back = examples_from(example_arrays(examples))
    one.forget(examples[4], [examples[i] for i in range(5, 15)])
    other.forget(back[4], [back[i] for i in range(5, 15)])
    for i in range(15, 30):
        np.testing.assert_array_equal(
            one.predict(features[i], beliefs[i]), other.predict(features[i], beliefs[i])
        )
        one.learn(features[i], beliefs[i], int(labels[i]))
        other.learn(features[i], beliefs[i], int(labels[i]))
    assert one.summary() == other.summary()


def test_a_base_that_says_impossible_can_be_overruled():
    head = Head(2, 2, bases=1)
    sure = np.array([[0.0, -np.inf]])
    for _ in range(30):
        head.learn(np.array([1.0, 0.0]), sure, 1)
    assert np.isfinite(head.predict(np.array([1.0, 0.0]), sure)).all()


def found(**more):
    calm = {"head_labels": 20, "head_noise": 0.05, "head_trust": 0.9, "head_fairness": 1.0}
    return calm | {"head_look_again": []} | more


def test_notes_say_what_is_wrong_and_nothing_else():
    names, even = ["cat", "dog", "car"], np.array([7.0, 7.0, 6.0])
    assert notes_on(found(), even, names) == []
    assert notes_on(found(head_labels=0), np.zeros(3), names) == []
    (noisy,) = notes_on(found(head_noise=0.31, head_look_again=[3, 9]), even, names)
    assert "31%" in noisy
    assert "3, 9" in noisy
    (useless,) = notes_on(found(head_trust=0.2), even, names)
    assert "not made predictions better" in useless
    (unfair,) = notes_on(found(head_fairness=0.2), even, names)
    assert "fewer classes" in unfair
    (missing,) = notes_on(found(), np.array([10.0, 10.0, 0.0]), names)
    assert "1 of the 3 classes: 'car'" in missing
    (single,) = notes_on(found(), np.array([20.0, 0.0, 0.0]), names)
    assert "'cat'" in single
