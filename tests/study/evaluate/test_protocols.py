"""Measures of protocols beside naive versions: ROSITA's open set, Tempora's clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.study.evaluate import measures


def naive_limit(scores: list[float]) -> float:
    """Of all limits in steps of 0.01, the one with the least sum of squares within; the lowest of equals."""
    places = np.floor(np.array(scores) * 100).clip(0, 99)
    best, limit = np.inf, 0
    for cut in range(1, 100):
        low, high = places[places < cut], places[places >= cut]
        if len(low) and len(high):
            within = ((low - low.mean()) ** 2).sum() + ((high - high.mean()) ** 2).sum()
            if within < best - 1e-9:
                best, limit = within, cut
    return limit


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans(), st.booleans()), min_size=2, max_size=40))
def test_open_set_rejects_below_the_best_split_of_the_scores_so_far(
    images: list[tuple[int, bool, bool]],
) -> None:
    outside = np.array([image[2] for image in images])
    if outside.all() or not outside.any():
        return
    scores = [image[0] / 100 + 0.001 for image in images]
    rejected = np.array(
        [np.floor(score * 100).clip(0, 99) < naive_limit(scores[: t + 1]) for t, score in enumerate(scores)]
    )
    correct = np.array([float(image[1]) if not image[2] else np.nan for image in images])
    found = measures.open_set(np.array(scores), correct, outside)
    known = (correct[~outside] * ~rejected[~outside]).mean()
    assert found["acc_known"] == pytest.approx(known)
    assert found["acc_unknown"] == pytest.approx(rejected[outside].mean())


def test_the_harmonic_mean_is_of_both_accuracies() -> None:
    outside = np.arange(2000) % 2 == 1  # known : unknown is 1 : 1
    scores = np.where(outside, 0.3, 0.9)
    correct = np.where(outside, np.nan, (np.arange(2000) % 4 == 0).astype(float))
    found = measures.open_set(scores, correct, outside)
    assert found["acc_known"] == pytest.approx(0.5)
    assert found["acc_unknown"] == 1.0
    assert found["acc_hm"] == pytest.approx(2 * 0.5 / 1.5)


def test_the_queue_forgets() -> None:
    scores = np.concatenate([np.full(600, 0.1), np.full(1200, 0.5), np.full(5, 0.9)])
    outside = np.zeros(1805, bool)
    outside[-600:-5] = True  # by then all scores in the queue are alike: none is rejected
    assert measures.open_set(scores, np.ones(1805), outside)["acc_unknown"] == 0.0


@pytest.mark.parametrize(
    ("seconds", "served"),
    [
        ([0.01] * 6, [0, 1, 2, 3, 4, 5]),  # faster than they come
        ([0.23] * 6, [0, 1, 3, 5]),  # half as fast: one waits, the next is lost
        ([1.0] * 6, [0, 1]),
    ],
)
def test_an_image_that_finds_the_place_taken_is_not_served(seconds: list[float], served: list[int]) -> None:
    for image in range(6):
        correct = np.zeros(6)
        correct[image] = 1.0
        found = measures.utility(np.array(seconds), correct, 0.1)
        assert found == pytest.approx((image in served) / 6)
