"""Methods that learn from answers on features alone, written out again in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from taps import Learner
from taps.methods.registry import find_method, method_settings
from taps.model.clip import Clip
from taps.rivals.linear_probe import fit
from tests.methods.test_features import IMAGES, NAMES, Array, Picture, Stream, same, softmax

LABELS = {0: 2, 1: 2, 3: 1, 4: 2, 5: 1, 7: 0, 9: 1}
STEPWISE = ("clap", "cross_modal", "proker", "prolip")
RIVALS = ("class_means", "gda", "linear_probe", "tip_adapter", *STEPWISE)


@pytest.fixture(scope="module")
def stream(tiny64: Clip, picture: Picture) -> Stream:
    return Stream(tiny64, picture)


def run(s: Stream, name: str, **settings: Any) -> list[Array]:
    """Predictions with an answer after some of the images; a wrong one, taken back, after each."""
    method = find_method(name).build(s.clip, NAMES, method_settings(name, settings), 0)
    said = []
    for i, views in enumerate(s.views):
        output = method.predict(views[:1])
        said.append(output.probs.numpy())
        assert output.item is not None
        if i in LABELS:
            method.learn(i, LABELS[i], output.item)
        method.learn(100 + i, 3, output.item)
        method.forget(100 + i, 3, output.item)
    return said


def known(s: Stream, image: int, most: int | None = None) -> list[tuple[Array, int]]:
    """Labelled images before this one, the last of them."""
    before = [(s.x[j, 0], label) for j, label in LABELS.items() if j < image]
    return before if most is None else before[-most:]


def centred(scores: dict[int, float]) -> Array:
    """Scores less their mean; classes without one are the mean."""
    mean = np.mean(list(scores.values())) if scores else 0.0
    return np.array([scores.get(k, mean) - mean for k in range(len(NAMES))])


def of_class(held: list[tuple[Array, int]], label: int) -> list[Array]:
    return [x for x, y in held if y == label]


@pytest.mark.parametrize("zero_shot", [0.0, 1.0])
def test_class_means(stream: Stream, zero_shot: float) -> None:
    s = stream
    said = []
    for i in range(IMAGES):
        held, scores = known(s, i), {}
        for k in {y for _, y in held}:
            mean = np.mean(of_class(held, k), axis=0)
            scores[k] = s.scale * float(s.x[i, 0] @ mean) / np.linalg.norm(mean)
        said.append(softmax(zero_shot * s.logits[i, 0] + centred(scores)))
    same(run(stream, "class_means", zero_shot=zero_shot), said)


def test_gda(stream: Stream) -> None:
    s, dim = stream, stream.x.shape[-1]
    said = []
    shared = 0
    for i in range(IMAGES):
        held = known(s, i)
        means = {k: np.mean(of_class(held, k), axis=0) for k in {y for _, y in held}}
        precision = dim * np.eye(dim)
        if len(held) > len(means):
            shared += 1
            covariance = np.cov(np.stack([x - means[y] for x, y in held]).T)
            precision = dim * np.linalg.pinv(
                (len(held) - 1) * covariance + np.trace(covariance) * np.eye(dim)
            )
        scores = {k: float(s.x[i, 0] @ precision @ m - 0.5 * m @ precision @ m) for k, m in means.items()}
        said.append(softmax(s.logits[i, 0] + 0.02 * centred(scores)))
    assert shared > 3
    same(run(stream, "gda", weight=0.02), said)


@pytest.mark.parametrize("buffer", [1000, 1])
def test_tip_adapter(stream: Stream, buffer: int) -> None:
    s = stream
    method = find_method("tip_adapter").build(
        s.clip, NAMES, method_settings("tip_adapter", {"buffer": buffer}), 0
    )
    said, expected = [], []
    for i, views in enumerate(s.views):
        out = s.logits[i, 0].copy()
        for x, y in known(s, i, buffer):
            out[y] += 1.0 * np.exp(-5.5 * (1 - x @ s.x[i, 0]))
        expected.append(softmax(out))
        output = method.predict(views[:1])
        said.append(output.probs.numpy())
        assert output.item is not None
        if i in LABELS:
            method.learn(i, LABELS[i], output.item)
            assert method.remembers(i)
    assert method.remembers(0) == (buffer > 1)
    same(said, expected)
    if buffer > 1:
        same(run(stream, "tip_adapter"), expected)


def newton(x: Array, y: list[int], penalty: float) -> tuple[Array, Array]:
    """Multinomial logistic regression by Newton's method on all weights at once; intercepts are free."""
    rows = np.hstack([x, np.ones((len(x), 1))])
    classes, size = max(y) + 1, rows.shape[1]
    free = np.ones(size)
    free[-1] = 1e-12  # intercepts have a direction that changes nothing
    ridge = penalty * np.kron(np.eye(classes), np.diag(free))
    w, hot = np.zeros(classes * size), np.eye(classes)[y]
    for _ in range(50):
        p = softmax(rows @ w.reshape(classes, size).T)
        gradient = ((p - hot).T @ rows).ravel() + ridge @ w
        hessian = ridge.copy()
        for row, q in zip(rows, p, strict=True):
            hessian += np.kron(np.diag(q) - np.outer(q, q), np.outer(row, row))
        w = w - np.linalg.solve(hessian, gradient)
    found = w.reshape(classes, size)
    return found[:, :-1], found[:, -1]


@pytest.mark.parametrize("penalty", [1.0, 0.05])
def test_linear_probe(stream: Stream, penalty: float) -> None:
    """Zero-shot until two classes are named; then the fit to the labels so far, and no other class."""
    s = stream
    said = []
    for i in range(IMAGES):
        held = known(s, i)
        named = sorted({y for _, y in held})
        if len(named) < 2:
            said.append(s.probs[i, 0])
            continue
        # Two classes: scikit-learn penalises the difference of their weights.
        own = penalty * (2 if len(named) == 2 else 1)
        weights, bias = newton(np.stack([x for x, _ in held]), [named.index(y) for _, y in held], own)
        p = np.zeros(len(NAMES))
        p[named] = softmax(weights @ s.x[i, 0] + bias)
        said.append(p)
    np.testing.assert_allclose(np.stack(run(s, "linear_probe", penalty=penalty)), said, atol=1e-7, rtol=0)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_fit_is_that_of_scikit_learn(classes: int) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 6)), np.arange(30) % classes
    theirs = linear_model.LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000).fit(x, y).predict_proba(x)
    rows = torch.from_numpy(np.hstack([x, np.ones((30, 1))]))
    weights = fit(rows, torch.from_numpy(np.eye(classes)[y]), rows.new_zeros(classes, 7), 0.5)
    np.testing.assert_allclose(torch.softmax(rows @ weights.T, 1).numpy(), theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", RIVALS)
def test_an_answer_taken_back_was_never_given(tiny: Clip, picture: Picture, name: str) -> None:
    learners = [Learner(tiny, NAMES, name, policy="fixed", tau0=-1.0) for _ in range(2)]
    for learner in learners:
        for i in range(6):
            learner.learn_one(learner.predict_one(picture(i)).id, i % 3)
    learners[0].learn_one(learners[0].predict_one(picture(6)).id, "fire truck")
    learners[0].undo(6)
    learners[1].predict_one(picture(6))
    first, second = (learner.predict_one(picture(7)).probs for learner in learners)
    np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("name", RIVALS)
def test_a_class_added_later_is_learned_as_if_it_had_been_there(
    tiny: Clip, picture: Picture, name: str
) -> None:
    whole = Learner(tiny, NAMES, name, policy="fixed", tau0=-1.0)
    grown = Learner(tiny, NAMES[:3], name, policy="fixed", tau0=-1.0)
    for i in range(6):
        for learner in (whole, grown):
            learner.learn_one(learner.predict_one(picture(i)).id, i % 3)
    grown.add_class(NAMES[3])
    for i in range(6, 9):
        for learner in (whole, grown):
            learner.learn_one(learner.predict_one(picture(i)).id, 3)
    first, second = (learner.predict_one(picture(9)).probs for learner in (whole, grown))
    np.testing.assert_allclose(first, second, atol=1e-5 if name in STEPWISE else 1e-6)
