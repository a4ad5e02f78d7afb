"""How images are seen: centres and the views' metric, worked out from all images at once."""

from __future__ import annotations

import numpy as np
import pytest

from taps.errors import StateError
from taps.head.whitening import FeatureWhitener, is_time, metric


def views_of(images: int, views: int, dim: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spread = np.linspace(0.1, 2.0, dim)  # views differ more in some directions than in others
    made = 3 * rng.normal(size=(images, 1, dim)) + spread * rng.normal(size=(images, views, dim))
    return made / np.linalg.norm(made, axis=2, keepdims=True)


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(values**exponent) @ vectors.T


def test_one_view_is_seen_from_the_mean_of_the_stream():
    views, whitener = views_of(20, 1, 5), FeatureWhitener(5, several=False)
    for t in range(20):
        found = whitener.see(views[t])
        np.testing.assert_allclose(found, views[t] - views[: t + 1, 0].sum(axis=0) / (t + 11), atol=1e-12)


def test_the_mean_of_views_is_seen_in_the_views_metric():
    views, whitener = views_of(70, 6, 5), FeatureWhitener(5, several=True)
    means = views.mean(axis=1)
    centred = np.array([means[t] - means[: t + 1].sum(axis=0) / (t + 11) for t in range(70)])
    for t in range(70):
        found = whitener.see(views[t])
        made = max((2**k for k in range(3, 7) if 2**k <= t + 1), default=0)
        if made == 0:
            np.testing.assert_allclose(found[1], centred[t], atol=1e-12)
            continue
        within = sum(np.cov(views[i].T, bias=True) for i in range(made))
        shape = power(within * 5 / np.trace(within) + 0.3 * np.eye(5), -0.5)
        before = centred[:made]
        shape *= np.sqrt((before**2).sum() / ((before @ shape) ** 2).sum())
        np.testing.assert_allclose(found[1], centred[t] @ shape, atol=1e-9)


def test_views_that_are_all_alike_make_no_metric():
    whitener = FeatureWhitener(4, several=True)
    for t in range(20):
        one = views_of(1, 1, 4, seed=t)[0]
        found = whitener.see(np.repeat(one, 3, axis=0))
        np.testing.assert_allclose(found[0], found[1], atol=1e-12)


def test_it_goes_on_where_it_was_saved_and_refuses_another_kind():
    views, one, other = views_of(40, 6, 5), FeatureWhitener(5, several=True), FeatureWhitener(5, several=True)
    for t in range(15):
        one.see(views[t])
    other.restore(one.arrays())
    for t in range(15, 40):
        np.testing.assert_array_equal(one.see(views[t]), other.see(views[t]))
    with pytest.raises(StateError, match="model and settings"):
        FeatureWhitener(5, several=False).restore(one.arrays())


def test_it_goes_on_where_a_version_saved_it_that_let_eight_images_wait():
    views, one, other = views_of(40, 6, 5), FeatureWhitener(5, several=True), FeatureWhitener(5, several=True)
    for t in range(11):
        one.see(views[t])
    saved = one.arrays()
    saved["lens.apart"] = saved["lens.apart"][8 * 16 :]  # the first eight are in the covariances
    saved["lens.centred"] = saved["lens.centred"][8:]
    other.restore(saved)
    for t in range(11, 40):
        np.testing.assert_allclose(one.see(views[t]), other.see(views[t]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.covariances(), other.covariances(), rtol=0, atol=1e-12)


def test_one_view_has_no_metric_to_keep():
    shapes = {name: array.shape for name, array in FeatureWhitener(5, several=False).arrays().items()}
    assert shapes == {
        "lens.seen": (1,),
        "lens.mean": (1, 5),
        "lens.between": (0, 0),
        "lens.within": (0, 0),
        "lens.transform": (0, 0),
        "lens.apart": (0, 5),
        "lens.centred": (0, 5),
    }


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_a_metric_is_the_power_of_the_spread_whatever_the_scale(scale):
    rng = np.random.default_rng(2)
    within, between = (scale * (part @ part.T) for part in rng.normal(size=(2, 4, 4)))
    shape = power(within * 4 / np.trace(within) + 0.3 * np.eye(4), -0.5)
    expected = shape * np.sqrt(np.trace(between) / np.trace(shape @ between @ shape))
    np.testing.assert_allclose(metric(within, between), expected, atol=1e-9)


def test_images_count_alike_however_many_views_they_have(monkeypatch):
    monkeypatch.setattr("taps.head.whitening.LAST", 16)
    whitener, within = FeatureWhitener(5, several=True), np.zeros((5, 5))
    for t in range(20):
        views = views_of(1, 3 if t % 2 else 6, 5, seed=t)[0]
        whitener.see(views)
        if t < 16:  # the last image that is measured is the sixteenth
            within += np.cov(views.T, bias=True)
    np.testing.assert_allclose(whitener.within, within, atol=1e-12)


def test_another_kind_is_refused_with_a_sentence():
    told = r"^The saved state does not fit: lens\.mean is .*; use the saved model and settings\.$"
    with pytest.raises(StateError, match=told):
        FeatureWhitener(5, several=False).restore(FeatureWhitener(5, several=True).arrays())


def test_the_metric_is_made_at_doublings_from_8_to_512_images():
    assert [seen for seen in range(2000) if is_time(seen)] == [8, 16, 32, 64, 128, 256, 512]


def test_sums_between_two_times_are_of_all_images_so_far():
    views, whitener = views_of(11, 6, 5), FeatureWhitener(5, several=True)
    means = views.mean(axis=1)
    centred = np.array([means[t] - means[: t + 1].sum(axis=0) / (t + 11) for t in range(11)])
    for t in range(11):
        whitener.see(views[t])
    within, between = whitener.covariances()
    np.testing.assert_allclose(within, sum(np.cov(each.T, bias=True) for each in views), atol=1e-12)
    np.testing.assert_allclose(between, centred.T @ centred, atol=1e-12)
