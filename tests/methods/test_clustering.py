"""Questions of a batch by clusters, against all partitions and against clusters that are plain to see."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from taps.rivals.clustering import kmeans, questions


def chance() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize("seed", range(4))
def test_k_means_finds_the_best_of_all_partitions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(8, 2)), rng.uniform(0.2, 5.0, size=8)

    def spread(groups: np.ndarray) -> float:
        total = 0.0
        for k in set(groups.tolist()):
            held, w = points[groups == k], weights[groups == k, None]
            total += float((w * (held - (w * held).sum(0) / w.sum()) ** 2).sum())
        return total

    best = min(spread(np.array(groups)) for groups in product(range(3), repeat=8))
    centres, nearest = kmeans(torch.from_numpy(points), torch.from_numpy(weights), 3, chance())
    assert spread(nearest.numpy()) == pytest.approx(best, rel=1e-9)
    own = points[nearest.numpy() == 0], weights[nearest.numpy() == 0, None]
    np.testing.assert_allclose(centres[0].numpy(), (own[1] * own[0]).sum(0) / own[1].sum(), atol=1e-12)


def around(x: float, offsets: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor([[x + each, 0.0] for each in offsets], dtype=torch.float64)


def test_each_new_cluster_has_one_question_about_its_most_central_image() -> None:
    """Anchors at 0 (two) and 100; images around 0, 100, 200 and 300. Four clusters: two are new."""
    anchors = torch.cat([around(0, (0.0, 0.2)), around(100, (0.0,))])
    images = torch.cat(
        [
            around(0, (0.1, 0.3)),
            around(200, (-1.0, 0.1, 1.0)),
            around(100, (0.4,)),
            around(300, (-2.0, 0.0, 2.0, 0.5)),
        ]
    )
    weights = torch.tensor([4.0, 2.0, 7.0], dtype=torch.float64)
    places, new, heavier = questions(anchors, weights, images, 4, chance())
    assert dict(zip(places, new, strict=True)) == {3: 3.0, 7: 4.0}
    # The cluster of the two anchors has four points, which they share; that of the third has two.
    assert heavier.tolist() == [4 + 4 / 2, 2 + 4 / 2, 7 + 2.0]


def test_without_an_anchor_every_cluster_has_a_question() -> None:
    images = torch.cat([around(x, (-0.1, 0.0, 0.1)) for x in (0, 50, 100)])
    places, new, heavier = questions(images[:0], torch.zeros(0).double(), images, 3, chance())
    assert sorted(places) == [1, 4, 7]
    assert new == [3.0] * 3
    assert not len(heavier)


def test_heavy_anchors_draw_the_centre_to_them() -> None:
    """Two clusters for points at 0, 4 and 10: weights decide which pair shares one."""
    points = torch.tensor([[0.0], [4.0], [10.0]], dtype=torch.float64)
    for weights, alone in (((1.0, 1.0, 1.0), 2), ((50.0, 10.0, 1.0), 0)):
        _, nearest = kmeans(points, torch.tensor(weights, dtype=torch.float64), 2, chance())
        assert [int((nearest == nearest[i]).sum()) for i in range(3)].index(1) == alone


def test_fewer_images_than_clusters_and_none_at_all() -> None:
    images = torch.tensor([[0.0], [5.0], [5.0]], dtype=torch.float64)
    assert 1 <= len(questions(images[:0], torch.zeros(0).double(), images, 9, chance())[0]) <= 3
    assert questions(images[:0], torch.zeros(0).double(), images[:0], 9, chance())[0] == []
