"""Sentences about the answers."""

from __future__ import annotations

import numpy as np
import pytest

from taps.head.notes import notes_on


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
    assert "less diverse" in unfair
    (missing,) = notes_on(found(), np.array([10.0, 10.0, 0.0]), names)
    assert "1 of the 3 classes: 'car'" in missing
    (single,) = notes_on(found(), np.array([20.0, 0.0, 0.0]), names)
    assert "'cat'" in single


NAMES, EVEN = ["cat", "dog", "car"], np.array([4.0, 3.0, 3.0])


@pytest.mark.parametrize(
    ("summary", "notes"),
    [
        ({"head_labels": 10, "head_noise": 0.2}, ["About 20% of the 10 answers seem to be wrong."]),
        ({"head_labels": 9, "head_noise": 0.9}, []),
        ({"head_labels": 10, "head_noise": 0.19}, []),
        (
            {"head_noise": 0.25, "head_look_again": [1, 2, 3, 4, 5]},
            ["About 25% of the 20 answers seem to be wrong; look again at the images 1, 2, 3, 4, 5."],
        ),
        (
            {"head_noise": 0.25, "head_look_again": [1, 2, 3, 4, 5, 6]},
            [
                "About 25% of the 20 answers seem to be wrong; "
                "look again at the images 1, 2, 3, 4, 5 and 1 more."
            ],
        ),
        (
            {"head_labels": 10, "head_trust": 0.49},
            ["The 10 answers have not made predictions better so far; they have little weight in them."],
        ),
        ({"head_labels": 9, "head_trust": 0.1}, []),
        ({"head_trust": 0.5}, []),
        (
            {"head_labels": 10, "head_fairness": 0.49},
            ["The answered images are less diverse than the others, so they are given less weight."],
        ),
        ({"head_labels": 9, "head_fairness": 0.1}, []),
        ({"head_fairness": 0.5}, []),
    ],
)
def test_sentences_and_from_when_on_they_are_said(summary, notes):
    assert notes_on(found(**summary), EVEN, NAMES) == notes


def test_sentences_about_classes():
    only = "All 20 answers are of the class 'dog'; nothing could be learned about the other classes."
    assert notes_on(found(), np.array([0.0, 20.0, 0.0]), NAMES) == [only]
    never = "No answer has named 7 of the 9 classes: 'c', 'd', 'e', 'f', 'g' and 2 more."
    assert notes_on(found(), np.array([1.0, 1.0, *np.zeros(7)]), list("abcdefghi")) == [never]
