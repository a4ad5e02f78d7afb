"""Krippendorff's α against the example that he published, and its interval against a simulation."""

from __future__ import annotations

import numpy as np

from taps.evaluate.agreement import alpha_interval, krippendorff_alpha

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", example C: four observers, nominal data.
OBSERVERS = (
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
)


def test_alpha_is_that_of_the_published_example():
    columns = zip(*(line.split() for line in OBSERVERS), strict=True)
    units = [[value for value in column if value != "."] for column in columns]
    assert round(krippendorff_alpha(units), 3) == 0.743


def test_answers_by_chance_have_an_alpha_of_0():
    rng = np.random.default_rng(0)
    assert abs(krippendorff_alpha(rng.integers(3, size=(4000, 2)).tolist())) < 0.04


def test_the_interval_covers_the_alpha_of_many_images():
    rng, share, covered = np.random.default_rng(1), 0.8, []
    truth = 1 - (1 - share) * 1.0  # of two answers, one is drawn at random in 1 − share of the cases
    for _ in range(60):
        first = rng.integers(4, size=60)
        second = np.where(rng.random(60) < share, first, rng.integers(4, size=60))
        low, high = alpha_interval(np.stack([first, second], axis=1).tolist())
        covered.append(low <= truth <= high)
    assert np.mean(covered) >= 0.85


def test_one_answer_says_nothing():
    assert krippendorff_alpha([["cat"], ["dog"]]) is None
    assert alpha_interval([["cat"], ["cat", "cat"]]) is None
