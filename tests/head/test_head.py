"""The head as a whole against the same written out, and what it does with answers good and bad."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.errors import SettingsError, StateError
from taps.head.head import Head
from taps.head.neighbours import row_of, vote
from taps.head.out_of_class import OutOfClass
from taps.types import OUTSIDE

WRONG = np.array([0.0, 0.1, 0.3])  # shares of wrong answers that are thought possible


def beliefs_and_features(count: int, classes: int, dim: int, seed: int, skill: float = 1.0):
    """A stream whose classes can be told from features better than from the beliefs."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, dim))
    labels = rng.integers(classes, size=count)
    features = centres[labels] + rng.normal(size=(count, dim))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    logits = rng.normal(size=(count, 2, classes)) + skill * np.eye(classes)[labels][:, None]
    return features, logits - np.log(np.exp(logits).sum(-1, keepdims=True)), labels


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


class Naive:
    """The head's formulas one after the other, for several views; features and neighbours are given."""

    def __init__(self, dim: int, classes: int) -> None:
        self.dim, self.classes, self.seen = dim, classes, []
        self.fits = {
            (f, lam, h): np.zeros((dim + 1, classes))
            for f in (0, 1)
            for lam in (0.03, 0.3)
            for h in (0.0, 0.5, 1.0)
        }
        alone = [0.7 / 6] * 6
        ridged = [0.3 * 0.2 * share for share in (2 / 3, 1 / 3)]
        fitted = [0.3 * 0.8 / 12] * 12
        self.weights = np.outer(np.array(alone + ridged + fitted), np.ones(3) / 3)
        self.votes = np.array([0.5, *[0.47 / 3] * 3, *[0.03 / 4] * 4])
        self.wrong = np.array([0.0, 0.1, 0.3])

    def experts(self, features, logs):
        """All experts of one image [20, K]."""
        rows = [sharp * base for sharp in (0.5, 1.0, 2.0) for base in logs]
        score = np.zeros(self.classes)
        if self.seen:
            xs = np.array([f[0] for f, _, _ in self.seen])
            residuals = np.array([np.eye(self.classes)[y] - np.exp(said[0]) for _, said, y in self.seen])
            score = features[0] @ np.linalg.solve(xs.T @ xs + np.eye(self.dim), xs.T @ residuals)
        rows += [logs[0] + strength * score for strength in (2.5, 16.0)]
        rows += [h * logs[1] + np.append(features[f], 0.1) @ w for (f, _, h), w in self.fits.items()]
        return softmax(np.array(rows))

    def belief(self, features, logs):
        trust = self.weights.sum(axis=1)
        trust = np.where(trust >= 0.01, trust, 0.0)
        return trust @ self.experts(features, logs) / trust.sum()

    def ballots(self, look, usual):
        own = self.belief(look.features[0], look.logs[0])
        others = [self.belief(f, said) for f, said in zip(look.features[1:], look.logs[1:], strict=True)]
        odds = vote(np.array(others), look.cosines.astype(float), usual) if others else np.zeros(self.classes)
        rows = [np.log(own) + tau * odds for tau in (0.0, 0.25, 0.5, 1.0)]
        for kappa in (0.5, 1.0):
            for gamma in (0.5, 0.9):
                answers = np.full(self.classes, 0.5 / self.classes)
                for since, (_, _, label) in enumerate(reversed(self.seen)):
                    answers[label] += gamma**since
                rows.append(np.log(own) + 0.5 * odds + kappa * np.log(answers / answers.sum()))
        return softmax(np.array(rows))

    def learn(self, look, usual, label):
        features, logs = look.features[0], look.logs[0]
        given = self.experts(features, logs)[:, [label]] * (1 - self.wrong) + self.wrong / self.classes
        noise = float((self.weights * self.wrong).sum())
        ballots = self.ballots(look, usual)[:, label] * (1 - noise) + noise / self.classes
        ballots[0] = (self.weights * given).sum()
        self.votes = self.votes * ballots / (self.votes * ballots).sum()
        self.weights = self.weights * given / (self.weights * given).sum()
        self.seen.append((features.astype(float), logs.astype(float), label))
        target = np.eye(self.classes)[[y for _, _, y in self.seen]]
        for (f, lam, h), weights in self.fits.items():
            inputs = np.array([np.append(one[f], 0.1) for one, _, _ in self.seen])
            offsets = np.array([h * said[1] for _, said, _ in self.seen])
            curvature = 0.5 * inputs.T @ inputs + lam * np.eye(self.dim + 1)
            for _ in range(2):
                slope = inputs.T @ (target - softmax(offsets + inputs @ weights)) - lam * weights
                weights = weights + np.linalg.solve(curvature, slope)
            self.fits[f, lam, h] = weights


def some_views(features, seed=0, count=3):
    rng = np.random.default_rng(seed)
    views = features[:, None] + 0.3 * rng.normal(size=(len(features), count, features.shape[1]))
    return views / np.linalg.norm(views, axis=2, keepdims=True)


def test_head_is_the_mixture_written_out():
    features, beliefs, labels = beliefs_and_features(60, 4, 6, seed=0)
    views = some_views(features)
    head, naive = Head(6, 4, bases=2, several=True), Naive(6, 4)
    for i in range(60):
        look = head.see(views[i], beliefs[i])
        expected = naive.votes @ naive.ballots(look, head.usual)
        assert head.fairness() == 1.0
        np.testing.assert_allclose(head.predict(look), expected, atol=1e-7)
        if i % 3 == 0:
            head.counts = np.full(4, 5.0)  # as fair as can be: fairness has a test of its own
            naive.learn(look, head.usual, int(labels[i]))
            head.learn(look, int(labels[i]))
            head.counts = np.full(4, 5.0)
            np.testing.assert_allclose(head.mixture.weights(), naive.weights.ravel(), atol=1e-7)
            np.testing.assert_allclose(head.votes.weights(), naive.votes, atol=1e-7)
    assert head.trust > 0.5


@settings(max_examples=12)
@given(st.sampled_from([0.0, 0.3]), st.booleans(), st.integers(0, 1000))
def test_the_answers_are_predicted_as_well_as_by_any_expert(noise, several, seed):
    """The stated bound, for every expert with every share of wrong answers and every weight of the votes."""
    features, beliefs, labels = beliefs_and_features(50, 5, 8, seed=seed)
    views, rng = some_views(features, seed), np.random.default_rng(seed)
    head = Head(8, 5, bases=2, several=several)
    first, second = head.mixture.weights(), head.votes.weights()
    experts, ballots, mixed = np.zeros(len(first)), np.zeros(len(second)), 0.0
    for view, belief, label in zip(views, beliefs, labels, strict=True):
        look = head.see(view, belief)
        answer = int(rng.integers(5)) if rng.random() < noise else int(label)
        before = head.mixture.losses, head.votes.losses[0], head.votes.weights()
        head.learn(look, answer)
        told = head.mixture.losses - before[0], head.votes.losses[0] - before[1]
        experts, ballots = experts + told[0], ballots + told[1]
        mixed -= np.log(before[2] @ np.exp(-told[1]))
    assert (mixed <= ballots - np.log(second) + 1e-9).all()
    assert (mixed <= experts - np.log(first) - np.log(second[0]) + 1e-9).all()


def test_the_share_of_wrong_answers_is_found_out():
    found = []
    for noise in (0.0, 0.3):
        features, beliefs, labels = beliefs_and_features(100, 5, 12, seed=9, skill=4.0)
        rng, head = np.random.default_rng(9), Head(12, 5, bases=2)
        fooled = 0
        for feature, belief, label in zip(features, beliefs, labels, strict=True):
            answer = (int(label) + 1) % 5 if rng.random() < noise else int(label)
            fooled += head.learn(head.see(feature[None], belief), answer).doubt > 0.5 and answer == label
        found.append(head.noise)
        assert fooled <= 10
    assert found[0] < 0.1
    assert found[1] > 0.2


def accuracy(head, features, beliefs, labels, answers):
    right = []
    for feature, belief, label, answer in zip(features, beliefs, labels, answers, strict=True):
        look = head.see(feature[None], belief)
        right.append(head.predict(look).argmax() == label)
        if answer is not None:
            head.learn(look, int(answer))
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
    look = head.see(features, beliefs[0])
    for _ in range(10):
        head.learn(look, 0)
        head.learn(look, 1)
    probs = head.predict(look)
    assert abs(probs[0] - probs[1]) < 0.25
    assert probs[2] < probs[:2].min()


def test_a_long_stream_where_the_labels_beat_the_bases_by_far_goes_on():
    """Weights below the smallest number are 0; what the bases alone say is found all the same."""
    features, beliefs, labels = beliefs_and_features(20, 3, 6, seed=3)
    head, far = Head(6, 3, bases=2), Head(6, 3, bases=2)
    accuracy(head, features, beliefs, labels, labels)
    accuracy(far, features, beliefs, labels, labels)
    losses = far.mixture.losses.copy()
    losses[:, : 3 * far.experts.alone] += 2000.0
    far.mixture.restore(losses, far.mixture.answers)
    look = head.see(features[:1], beliefs[0])
    found, said = far.learn(look, 1), head.learn(look, 1)
    trust = head.mixture.weights()[: 3 * head.experts.alone].sum()
    assert 0 < trust < 0.9
    assert np.isfinite(found.gain)
    assert abs(found.gain - said.gain) < 3


def in_a_cone(features):
    """As a model's features are: all much alike, with one direction in common."""
    turned = features + 2.0 * np.eye(features.shape[1])[0]
    return turned / np.linalg.norm(turned, axis=1, keepdims=True)


@pytest.mark.parametrize("always", [True, False])
def test_answers_of_one_class_do_not_pull_every_image_to_it(always):
    """Of features in a cone what knows one class pulls all; the answers must not speak for that."""
    features, beliefs, labels = beliefs_and_features(400, 6, 12, seed=11, skill=3.0)
    answers = [
        2 if (always and i % 10 == 0) or (not always and y == 2) else None for i, y in enumerate(labels)
    ]
    head = Head(12, 6, bases=2)
    base = (beliefs[:, 0].argmax(1) == labels).mean()
    assert accuracy(head, in_a_cone(features), beliefs, labels, answers) > base - 0.02
    assert head.labels >= 40
    assert head.fairness() < 0.01


@pytest.mark.parametrize("shares", [(0.8, 0.04, 0.04, 0.04, 0.04, 0.04), (0.5, 0.5, 0, 0, 0, 0)])
def test_a_stream_of_few_classes_is_learned_though_zero_shot_sees_many(shares):
    """A poor model finds all classes in every stream: that the answers name fewer is not their fault."""
    features, beliefs, labels = beliefs_and_features(1500, 6, 12, seed=2, skill=0.0)
    kept = np.random.default_rng(3).random(1500) < np.array(shares)[labels]
    features, beliefs, labels = in_a_cone(features[kept]), beliefs[kept], labels[kept]
    head = Head(12, 6, bases=2)
    answers = [label if i % 10 == 0 else None for i, label in enumerate(labels)]
    assert accuracy(head, features, beliefs, labels, answers) > 0.6
    assert head.fairness() > 0.9


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 100))
def test_fairness_is_the_share_of_pairs_that_differ_by_label_or_by_zero_shot(answers, seed):
    rng = np.random.default_rng(seed)
    head, shares = Head(2, 4, bases=1), rng.dirichlet(np.ones(4), 9)
    for share in shares:
        look = head.see(np.ones((1, 2)), np.log(share)[None])
    told = [rng.dirichlet(np.ones(4) / 5) for _ in answers]
    for answer, said in zip(answers, told, strict=True):
        head.learn(replace(look, rows=row_of(look.features[0], np.log(said)[None])[None]), answer)
    stream = shares.mean(axis=0)
    expected = 1 - (stream**2).sum()
    pairs = [(i, j) for i in range(len(answers)) for j in range(i)]
    named = sum(answers[i] != answers[j] for i, j in pairs)
    found = max(named, sum(1 - told[i] @ told[j] for i, j in pairs)) if named else 0.0
    share = (found + 10 * expected) / (len(pairs) + 10)
    assert head.fairness() == pytest.approx(min(1.0, share / expected) ** 4)


def test_without_labels_it_is_the_mixture_of_the_bases():
    features, beliefs, _ = beliefs_and_features(10, 4, 6, seed=7)
    head = Head(6, 4, bases=2)
    for feature, belief in zip(features, beliefs, strict=True):
        said = softmax(np.array([sharp * base for sharp in (0.5, 1.0, 2.0) for base in belief]))
        fitted = softmax(np.array([np.zeros(4), belief[1] / 2, belief[1]]))
        expected = 0.7 * said.mean(axis=0) + 0.06 * softmax(belief[0]) + 0.24 * fitted.mean(axis=0)
        np.testing.assert_allclose(head.predict(head.see(feature[None], belief)), expected, atol=1e-6)


def test_a_base_that_says_impossible_can_be_overruled():
    head = Head(2, 2, bases=1)
    sure = np.array([[0.0, -np.inf]])
    for _ in range(30):
        look = head.see(np.array([[1.0, 0.0]]), sure)
        head.learn(look, 1)
    assert np.isfinite(head.predict(look)).all()


def test_leverage_falls_with_every_label_like_it():
    features, beliefs, _ = beliefs_and_features(20, 3, 6, seed=3)
    head = Head(6, 3, bases=2)
    looks = [head.see(feature[None], belief) for feature, belief in zip(features, beliefs, strict=True)]
    assert head.leverage(looks[-1]) == pytest.approx(1.0)
    found = []
    for _ in range(4):
        found.append(head.leverage(looks[-1]))
        head.learn(looks[-1], 0)
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0]


def told_by_one_base(probs):
    """What a head on one base says of an image before any answer: each expert's probabilities and prior."""
    rows = [probs**sharp for sharp in (0.5, 1.0, 2.0, 1.0, 1.0, 0.0, 0.5, 1.0, 0.0, 0.5, 1.0)]
    prior = np.array([0.7 / 3] * 3 + [0.04, 0.02] + [0.04] * 6)
    return np.array([row / row.sum() for row in rows]), prior


@pytest.mark.parametrize(
    ("label", "no", "share"),
    [(1, (), lambda p: p[..., 1]), (-1, (0, 2), lambda p: 1 - p[..., 0] - p[..., 2])],
)
def test_the_first_answer_is_judged_by_the_formulas(label, no, share):
    probs = np.array([0.85, 0.03, 0.05, 0.07])
    rows, prior = told_by_one_base(probs)
    said, chance = share(rows), share(np.full(4, 0.25))
    given_to_it = said[:, None] * (1 - WRONG) + WRONG * chance
    weights = np.outer(prior, np.ones(3) / 3)
    mixed = (weights * given_to_it).sum()
    bases = (weights[:3] * given_to_it[:3]).sum() / 0.7
    vote = share(prior @ rows) * (1 - WRONG.mean()) + WRONG.mean() * chance  # no class has a share yet
    head = Head(3, 4, bases=1)
    example = head.learn(head.see(np.eye(3)[:1], np.log(probs)[None]), label, no=no, person=2)
    assert (example.label, example.no, example.person) == (label, no, 2)
    assert example.gain == head.gain == pytest.approx(np.log(mixed / bases), abs=1e-6)
    doubt = 1 - (weights * (1 - WRONG) * said[:, None]).sum() / mixed
    assert example.doubt == pytest.approx(doubt, abs=1e-6)
    assert head.doubted == (doubt > 0.5)
    np.testing.assert_allclose(head.mixture.losses[2], -np.log(given_to_it).ravel(), atol=1e-6)
    np.testing.assert_allclose(head.votes.losses[0], -np.log([mixed, *[vote] * 7]), atol=1e-6)
    assert head.counts.tolist() == ([0, 0, 0, 0] if no else [0, 1, 0, 0])
    assert head.mixture.answers.tolist() == [0, 0, 1]


def test_what_cannot_be_left_is_as_unlikely_as_can_be():
    head = Head(2, 3, bases=1)
    example = head.learn(head.see(np.eye(2)[:1], np.log([[0.5, 0.3, 0.2]])), -1, no=(0, 1))
    rounded = np.array([[0.5, 0.5 + 1e-12, 0.0], [0.4, 0.2, 0.4]])
    np.testing.assert_allclose(example.likelihood(rounded), [0.0, 0.4], atol=1e-15)


def test_the_summary_is_made_of_what_was_learned():
    head, rng = Head(4, 3, bases=1), np.random.default_rng(4)
    assert head.summary() == {
        "head_labels": 0,
        "head_classes": 0,
        "head_trust": 0.3,
        "head_votes": 0.47,
        "head_shares": 0.03,
        "head_gain": 0.0,
        "head_noise": 0.1333,
        "head_fairness": 1.0,
        "head_doubted": 0,
    }
    unsure, sure, examples = np.array([0.6, 0.3, 0.1]), np.array([0.97, 0.02, 0.01]), []
    for label in (0, 0, 2, 0, 0, 0, -1):
        look = head.see(rng.normal(size=(1, 4)), np.log(sure if label == 2 else unsure)[None])
        examples.append(head.learn(look, label, no=() if label >= 0 else (1,)))
    for _ in range(7):
        head.see(rng.normal(size=(1, 4)), np.log(np.full((1, 3), 1 / 3)))
    weights = head.mixture.weights().reshape(11, 3)
    differ = 1 - (((6 * unsure + sure + 7 / 3) / 14) ** 2).sum()
    found = 10 * (1 - unsure @ unsure) + 5 * (1 - unsure @ sure)  # 5 of the 15 pairs differ by label
    assert head.summary() == {
        "head_labels": 6,
        "head_classes": 2,
        "head_trust": round(weights[3:].sum(), 4),
        "head_votes": round(head.votes.weights()[1:4].sum(), 4),
        "head_shares": round(head.votes.weights()[4:].sum(), 4),
        "head_gain": round(sum(one.gain for one in examples) / 7, 4),
        "head_noise": round((weights * WRONG).sum(), 4),
        "head_fairness": round(((found + 10 * differ) / (25 * differ)) ** 4, 4),
        "head_doubted": sum(one.doubt > 0.5 for one in examples),
    }
    assert head.doubted > 0
    head.votes.restore(np.array([0.0, 1.0, 2.0, 3.0, *[1.0] * 4]))
    votes, shares = 0.47 / 3 * np.exp([-1.0, -2.0, -3.0]).sum(), 0.03 * np.exp(-1.0)
    assert head.summary()["head_votes"] == round(votes / (0.5 + votes + shares), 4)
    assert head.summary()["head_shares"] == round(shares / (0.5 + votes + shares), 4)


@pytest.mark.parametrize("several", [False, True])
def test_how_new_an_image_is_and_whether_it_shows_none_of_the_classes(several):
    """Newness by view 0, outside by the mean of the views where there are several."""
    head, outside, rng = Head(4, 3, bases=2, several=several), OutOfClass(4), np.random.default_rng(6)
    learned, stream = [], np.zeros(3)
    for turn in range(8):
        logs = np.log(rng.dirichlet(np.ones(3), 2))
        look, stream = head.see(rng.normal(size=(3, 4)), logs), stream + np.exp(logs[0])
        own = look.features[0].astype(np.float64)
        xs = np.array(learned).reshape(-1, 4)
        new = own[0] @ np.linalg.inv(xs.T @ xs + np.eye(4)) @ own[0] / (own[0] @ own[0])
        assert head.leverage(look) == pytest.approx(new)
        assert head.reject(look) == outside.probability(own[int(several)])
        head.learn(look, OUTSIDE if turn % 3 == 1 else turn % 3)
        outside.learn(own[int(several)], turn % 3 == 1)
        learned += [] if turn % 3 == 1 else [own[0]]
    np.testing.assert_allclose(head.stream, stream, atol=1e-12)
    wider = Head(4, 5, bases=2, several=several)
    wider.restore(head.arrays())
    np.testing.assert_allclose(wider.usual, [*stream / 8, 0.0, 0.0], atol=1e-12)
    look = wider.see(rng.normal(size=(3, 4)), np.log(np.full((2, 5), 0.2)))
    expected = [*(stream + 0.2) / 9, 0.2, 0.2]  # of an added class over the images since
    np.testing.assert_allclose(wider.usual, expected, atol=1e-12)
    again = Head(4, 5, bases=2, several=several)
    again.restore(wider.arrays())
    np.testing.assert_allclose(again.usual, expected, atol=1e-12)
    assert wider.counts.tolist() == [*head.counts, 0, 0]
    wider.learn(look, 3)
    assert wider.answered.tolist() == [0, 0, 0, 1 / (wider.labels + 1), 0]


@pytest.mark.parametrize("seed", range(4))
def test_one_answer_of_an_added_class_does_not_take_images_unlike_it(seed):
    """Zero-shot knows little of five kinds of images and never names the added class."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(5, 16))
    kinds = rng.integers(5, size=90)
    views = some_views(0.3 + centres[kinds] + 0.8 * rng.normal(size=(90, 16)), seed)
    said = softmax(rng.normal(size=(90, 1, 6)) + 0.3 * np.eye(6)[kinds][:, None] - 8 * np.eye(6)[5])
    head, wider = Head(16, 5, bases=1, several=True), Head(16, 6, bases=1, several=True)
    for i in range(60):
        look = head.see(views[i], np.log(said[i, :, :5] / said[i, :, :5].sum()))
        if i % 10 == 0:
            head.learn(look, int(kinds[i]))
    wider.restore(head.arrays())
    wider.learn(wider.see(views[60], np.log(said[60])), 5)
    unlike = [i for i in range(61, 90) if kinds[i] != kinds[60]]
    taken = [wider.predict(wider.see(views[i], np.log(said[i]))).argmax() == 5 for i in unlike]
    assert sum(taken) <= len(unlike) / 5


def test_what_cannot_be_is_refused():
    with pytest.raises(
        SettingsError, match=r"^A head needs at least one prediction; give the zero-shot one\.$"
    ):
        Head(2, 2, bases=0)
    told = r"^The saved head has 5 classes, this one 4; use the saved classes\.$"
    with pytest.raises(StateError, match=told):
        Head(6, 4, bases=2).go_to(Head(6, 5, bases=2).state())
