"""The classes' shares of the answers, and what the head makes of them."""

import numpy as np
import pytest

from taps.head.experts import ClassShares
from taps.head.head import Head


def test_older_answers_count_less():
    shares = ClassShares(3, fading=(0.5, 1.0), strengths=(1.0, 2.0))
    for label in (2, 0, 0):
        shares.learn(label)
    fading = np.array([1.5, 0.0, 0.25]) + 0.5 / 3
    all_alike = np.array([2.0, 0.0, 1.0]) + 0.5 / 3
    logs = np.log(np.array([fading / 2.25, all_alike / 3.5]))
    np.testing.assert_allclose(shares.logits(3), np.concatenate([logs, 2 * logs]))


def test_given_answers_stand_for_the_last_ones_and_of_fewer_classes():
    shares = ClassShares(3, fading=(0.5, 0.9), strengths=(1.0,))
    shares.learn(2)
    expected = np.log(np.array([3.25, 1.25]) / 4.5)
    np.testing.assert_allclose(shares.logits(2, np.array([3.0, 1.0, 7.0])), [expected, expected])


def stream(head, labels, rng):
    """Features that say nothing, a base that says little; every second image is answered. Right or not."""
    right = []
    for place, label in enumerate(labels):
        said = np.log(np.full(4, 0.2) + 0.2 * np.eye(4)[rng.integers(4)])
        look = head.see(rng.normal(size=(1, 3)), said[None])
        right.append(int(head.predict(look).argmax()) == label)
        if place % 2 == 0:
            head.learn(look, label)
    return np.mean(right[len(right) // 4 :])


@pytest.mark.parametrize(
    ("labels", "least"),
    [([0, 0, 0, 0, 1, 0, 0, 0, 0, 2] * 8, 0.75), ([0] * 20 + [1] * 20 + [2] * 20 + [3] * 20, 0.7)],
    ids=["one class mostly", "class after class"],
)
def test_the_head_finds_out_where_shares_help(labels, least):
    assert stream(Head(3, 4, bases=1), labels, np.random.default_rng(0)) > least


def test_in_any_order_shares_are_given_up():
    rng, head = np.random.default_rng(1), Head(3, 4, bases=1)
    for label in rng.integers(4, size=60).tolist():
        said = np.log(np.full(4, 0.05) + 0.8 * np.eye(4)[label])
        head.learn(head.see(rng.normal(size=(1, 3)), said[None]), label)
    assert head.summary()["head_shares"] < 0.03


def test_an_earlier_image_is_not_pulled_to_the_last_class():
    rng, head = np.random.default_rng(2), Head(3, 2, bases=1)
    flat = np.log([[0.5, 0.5]])
    early = head.see(rng.normal(size=(1, 3)), np.log([[0.55, 0.45]]))
    for label in [0] * 12 + [1] * 12:
        head.learn(head.see(rng.normal(size=(1, 3)), flat), label)
    assert head.predict(early)[1] > 0.5 > head.predict(early, again=True)[1]
