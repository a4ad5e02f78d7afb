"""Votes of the images most like one, against a search through all of them."""

from __future__ import annotations

import numpy as np
import pytest

from taps.errors import StateError
from taps.head.neighbours import LOWEST, NEAR, Neighbourhood, RecentImages, vote


def fill(
    recent: RecentImages, count: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, list[Neighbourhood]]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 2, 6))
    logs = np.log(rng.dirichlet(np.ones(3), size=(count, 1)))
    return features, logs, [recent.look(f, said) for f, said in zip(features, logs, strict=True)]


def test_the_nearest_of_the_last_images_are_found():
    features, logs, looks = fill(RecentImages((2, 6), (1, 3), size=40), 100)
    units = features[:, 1] / np.linalg.norm(features[:, 1], axis=1, keepdims=True)
    for t in (NEAR, 39, 70, 99):
        before = np.arange(max(0, t - 40), t)
        cosines = units[before] @ units[t]
        nearest = before[np.argsort(-cosines)[:NEAR]]
        order = np.argsort(-looks[t].cosines)
        np.testing.assert_allclose(looks[t].cosines[order], np.sort(cosines)[::-1][:NEAR], atol=1e-6)
        np.testing.assert_allclose(looks[t].features[1:][order], features[nearest], atol=1e-6)
        np.testing.assert_allclose(looks[t].logs[1:][order], logs[nearest], atol=1e-6)
        assert looks[t].density == pytest.approx(np.sort(cosines)[-NEAR:].mean(), abs=1e-6)
    assert [len(look.cosines) for look in looks[: NEAR + 1]] == [0] * NEAR + [NEAR]
    assert looks[3].density == 1.0


def test_the_same_image_again_does_not_vote_for_itself():
    recent = RecentImages((2, 6), (1, 3))
    features, logs, _ = fill(recent, 30)
    look = recent.look(features[7], logs[7])
    assert look.cosines.max() < 0.999


def test_votes_are_the_weighted_mean_against_the_usual():
    rng = np.random.default_rng(3)
    beliefs, cosines, usual = (
        rng.dirichlet(np.ones(4), 5),
        rng.uniform(0.2, 0.9, 5),
        rng.dirichlet(np.ones(4)),
    )
    weights = [np.exp(20 * (c - 1)) for c in cosines]
    said = sum(w * q for w, q in zip(weights, beliefs, strict=True)) / sum(weights)
    expected = np.log(said + 0.005) - np.log(usual + 0.005)
    np.testing.assert_allclose(vote(beliefs, cosines, usual), expected, atol=1e-9)
    assert not vote(beliefs[:0], cosines[:0], usual).any()


def test_neighbours_vote_for_the_classes_that_they_know():
    """Of a class that no neighbour knows they say nothing; of one that some know, these alone vote."""
    rng = np.random.default_rng(4)
    beliefs, cosines = rng.dirichlet(np.ones(4), 3), np.array([0.9, 0.8, 0.7])
    usual, known = rng.dirichlet(np.ones(4)), np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]])
    odds = vote(beliefs, cosines, usual, known)
    for place in range(4):
        who = np.flatnonzero(known[:, place])
        alone = vote(beliefs[who], cosines[who], usual)
        assert odds[place] == pytest.approx(alone[place] if len(who) else 0.0, abs=1e-12)


def test_looks_are_widened():
    _, _, looks = fill(RecentImages((2, 6), (1, 3)), 20)
    for look in (looks[0], looks[-1]):
        assert look.rows.dtype == np.float32
        assert look.rows.shape == (len(look.logs), 1 + 2 * 6 + 3)
        wide = look.widened(np.log(np.full((1, 5), 0.2, dtype=np.float32)))
        np.testing.assert_array_equal(wide.features, look.features)
        np.testing.assert_array_equal(wide.cosines, look.cosines)
        assert wide.logs.shape == (len(look.logs), 1, 5)
        np.testing.assert_allclose(wide.logs[0], np.log(0.2))
        assert (wide.logs[1:, :, 3:] == LOWEST).all()
        np.testing.assert_array_equal(wide.logs[1:, :, :3], look.logs[1:])


def test_a_ring_goes_on_where_it_was_saved():
    one, other = RecentImages((2, 6), (1, 3), size=30), RecentImages((2, 6), (1, 5), size=30)
    fill(one, 45)
    other.restore(one.arrays())
    assert (other.arrays()["ring.logs"][:, :, 3:] == LOWEST).all()
    features, logs, _ = fill(RecentImages((2, 6), (1, 3)), 20, seed=1)
    for f, said in zip(features, logs, strict=True):
        mine, theirs = one.look(f, said), other.look(f, np.pad(said, ((0, 0), (0, 2))))
        np.testing.assert_array_equal(mine.features, theirs.features)
    with pytest.raises(StateError):
        RecentImages((1, 6), (1, 3)).restore(one.arrays())


def test_an_image_of_one_feature_is_compared_by_it():
    recent, rng = RecentImages((1, 4), (1, 2)), np.random.default_rng(5)
    features = rng.normal(size=(NEAR + 1, 1, 4))
    looks = [recent.look(one, np.log([[0.5, 0.5]])) for one in features]
    units = features[:, 0] / np.linalg.norm(features[:, 0], axis=1, keepdims=True)
    np.testing.assert_allclose(np.sort(looks[-1].cosines), np.sort(units[:-1] @ units[-1]), atol=1e-6)


def test_of_many_images_just_the_nearest_are_found():
    recent, rng = RecentImages((1, 8), (1, 2)), np.random.default_rng(6)
    features = rng.normal(size=(1500, 1, 8))
    for one in features:
        look = recent.look(one, np.log([[0.5, 0.5]]))
    units = features[:, 0] / np.linalg.norm(features[:, 0], axis=1, keepdims=True)
    before = (units[:-1] @ units[-1])[-len(recent.unit) :]
    np.testing.assert_allclose(np.sort(look.cosines), np.sort(before)[-NEAR:], atol=1e-6)


def test_where_all_images_are_the_same_they_count_as_opposite():
    recent = RecentImages((1, 3), (1, 2))
    for _ in range(NEAR + 1):
        look = recent.look(np.array([[1.0, 2.0, 2.0]]), np.log([[0.5, 0.5]]))
    assert look.cosines.tolist() == [-1.0] * NEAR


def test_a_ring_of_other_features_is_refused_with_a_sentence():
    told = r"^The saved state does not fit: ring\..*; use the saved model and settings\.$"
    with pytest.raises(StateError, match=told):
        RecentImages((1, 6), (1, 3)).restore(RecentImages((2, 6), (1, 3)).arrays())
