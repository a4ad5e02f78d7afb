"""CB's rule on a stream, against a reference that keeps every image."""

from __future__ import annotations

import numpy as np
import pytest

from taps.active.acquisition import MOST, Clusters, joined


class Reference:
    """Lists of the images of each cluster; a mean is computed anew wherever it is wanted."""

    def __init__(self) -> None:
        self.clusters: list[list[np.ndarray]] = []
        self.labels: list[int] = []

    def nearest(self, image: np.ndarray) -> tuple[float, int]:
        found = []
        for place, cluster in enumerate(self.clusters):
            mean = np.mean([each[: len(image)] for each in cluster], axis=0)
            found.append((float(image @ mean) / np.sqrt(float(mean @ mean)), -place))
        cosine, place = max(found)
        return cosine, -place

    def score(self, image: np.ndarray, classes: int) -> float:
        if len(self.clusters) < classes + min(MOST, sum(self.labels)):
            self.clusters.append([])
            self.labels.append(0)
            cosine, place = 1.0, len(self.clusters) - 1
        else:
            cosine, place = self.nearest(image)
        self.clusters[place].append(image)
        images = sum(len(cluster) for cluster in self.clusters)
        return max(cosine, 0.0) * len(self.clusters[place]) / images / (1 + self.labels[place])


def images_of(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Features around four directions, and what they are clustered by."""
    rng = np.random.default_rng(seed)
    features = np.eye(6)[rng.integers(4, size=count)] + 0.3 * rng.normal(size=(count, 6))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    text, probs = rng.normal(size=(3, 6)), rng.dirichlet(np.ones(3), size=count)
    rows = []
    for feature, said in zip(features, probs, strict=True):
        row = np.array([*feature, *(sum(p * t for p, t in zip(said, text, strict=True)))])
        rows.append(row / np.sqrt(row @ row))
        np.testing.assert_allclose(joined(feature, said, text), rows[-1], atol=1e-12)
    return features, np.array(rows)


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_clusters_that_keep_every_image(seed: int) -> None:
    features, rows = images_of(seed, 150)
    clusters, reference, answered = Clusters(), Reference(), []
    for i in range(150):
        assert clusters.score(rows[i], 3) == pytest.approx(reference.score(rows[i], 3), abs=1e-12)
        if i % 10 == 4:
            answered.append(i - 3)
            clusters.answer(features[i - 3], 1)
            reference.labels[reference.nearest(features[i - 3])[1]] += 1
        if i % 50 == 49:
            back = features[answered.pop()]
            clusters.answer(back, -1)
            at = reference.nearest(back)[1]
            reference.labels[at] = max(0, reference.labels[at] - 1)
    assert clusters.labels[: clusters.begun].tolist() == reference.labels
    assert clusters.begun > 10


def test_the_fewest_answers_come_first_and_then_the_largest_cluster() -> None:
    clusters, rows = Clusters(), np.eye(3)
    for place in (0, 1, 2, 0, 0, 0, 1, 1, 2):
        clusters.score(rows[place], 3)
    clusters.answer(rows[0], 1)
    clusters.score(rows[0], 3)  # one more cluster for the answer, as like as the first
    scores = [clusters.score(rows[place], 3) for place in range(3)]
    assert scores[1] > scores[2]
    assert scores[0] < scores[1]


def test_memory_stays_the_same_however_many_answers_there_are() -> None:
    clusters, rows = Clusters(), np.random.default_rng(0).normal(size=(400, 4))
    for row in rows:
        clusters.score(row, 2)
        clusters.answer(row[:2], 1)
        assert clusters.sums.shape == (2 + MOST, 4)
    clusters.score(rows[0], 5)  # classes were added
    assert (clusters.sums.shape, clusters.begun) == ((5 + MOST, 4), 3 + MOST)
    assert clusters.labels.sum() == 400
