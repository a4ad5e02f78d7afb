"""Each loss against its equation, summed term by term in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from taps.learning.losses import (
    align_paper,
    align_promptalign,
    confident_count,
    cross_entropies,
    entropies,
    mean_entropy,
    mean_log_probs,
    moments,
    select_confident,
)

logit_rows = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12),
    elements=st.floats(-60, 60),
)


def probabilities(row: list[float]) -> list[float]:
    top = max(row)
    terms = [math.exp(value - top) for value in row]
    return [term / math.fsum(terms) for term in terms]


def entropy(row: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in row if p > 0)


@given(logit_rows)
def test_entropy_of_each_row(rows: np.ndarray) -> None:
    expected = [entropy(probabilities(row)) for row in rows.tolist()]
    assert entropies(torch.from_numpy(rows)).tolist() == pytest.approx(expected, abs=1e-9)


@given(logit_rows)
def test_entropy_of_the_mean_probability(rows: np.ndarray) -> None:
    """Not the mean of the entropies, and not the entropy of the mean logit."""
    each = [probabilities(row) for row in rows.tolist()]
    mean = [math.fsum(column) / len(each) for column in zip(*each, strict=True)]
    assert mean_entropy(torch.from_numpy(rows)).item() == pytest.approx(entropy(mean), abs=1e-9)
    logs = mean_log_probs(torch.from_numpy(rows)).exp()
    assert logs.tolist() == pytest.approx(mean, abs=1e-12)


@given(logit_rows, st.floats(0.01, 1))
def test_selection_is_a_stable_sort(rows: np.ndarray, fraction: float) -> None:
    logits = torch.from_numpy(rows)
    values = entropies(logits).tolist()
    kept = max(1, int(fraction * len(values)))
    expected = sorted(range(len(values)), key=lambda view: (values[view], view))[:kept]
    assert select_confident(logits, fraction).tolist() == expected


def test_of_many_images_are_those_of_each() -> None:
    logits = 3 * torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for function in (entropies, mean_log_probs, mean_entropy):
        assert torch.allclose(function(logits), torch.stack([function(each) for each in logits]), rtol=1e-12)
    chosen = select_confident(logits, 0.5)
    assert chosen.tolist() == [select_confident(each, 0.5).tolist() for each in logits]


@pytest.mark.parametrize(
    ("views", "fraction", "kept"), [(64, 0.1, 6), (1, 0.1, 1), (9, 0.1, 1), (10, 1.0, 10), (8, 0.5, 4)]
)
def test_how_many_views_are_kept(views: int, fraction: float, kept: int) -> None:
    assert confident_count(views, fraction) == kept


def test_ties_go_to_the_earlier_view() -> None:
    logits = torch.zeros(10, 5)
    assert select_confident(logits, 0.3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("views", [16, 17, 64, 200])
def test_ties_go_to_the_earlier_view_among_many(views: int) -> None:
    """A sort that is not told to be stable keeps the order of up to 16 ties and shuffles more of them."""
    logits = torch.tensor([[0.0, 3.0], [0.0, 1.0], [0.0, 0.0]]).repeat(views, 1)[:views]
    expected = [view for pattern in range(3) for view in range(pattern, views, 3)]
    assert select_confident(logits, 1.0).tolist() == expected
    assert select_confident(torch.zeros(views, 5), 1.0).tolist() == list(range(views))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certainty_is_no_entropy_and_no_nan(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1e4, 0.0, -1e4], [1e4, 0.0, -1e4]], dtype=dtype, requires_grad=True)
    value = mean_entropy(logits)
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == pytest.approx(0, abs=1e-6)
    assert torch.isfinite(gradient).all()
    assert entropies(logits).tolist() == pytest.approx([0, 0], abs=1e-6)


def test_largest_entropy_is_the_logarithm_of_the_classes() -> None:
    for classes in (2, 7, 1000):
        assert mean_entropy(torch.zeros(6, classes)).item() == pytest.approx(math.log(classes), rel=1e-6)


def test_views_that_disagree_with_certainty_are_uncertain_together() -> None:
    logits = torch.tensor([[50.0, 0.0], [0.0, 50.0]])
    assert entropies(logits).max() < 1e-6
    assert mean_entropy(logits).item() == pytest.approx(math.log(2), abs=1e-6)


def test_a_view_of_nan_is_never_confident() -> None:
    logits = torch.tensor([[math.nan, 1.0], [0.0, 1.0], [5.0, 0.0], [1.0, 1.0]])
    assert select_confident(logits, 0.75).tolist() == [2, 1, 3]


@given(logit_rows, st.data())
def test_cross_entropy(rows: np.ndarray, data: st.DataObject) -> None:
    labels = [data.draw(st.integers(0, rows.shape[1] - 1)) for _ in rows]
    tops = [max(row) for row in rows.tolist()]
    expected = [
        top + math.log(math.fsum(math.exp(value - top) for value in row)) - row[label]
        for row, label, top in zip(rows.tolist(), labels, tops, strict=True)
    ]
    values = cross_entropies(torch.from_numpy(rows), torch.tensor(labels))
    assert values.tolist() == pytest.approx(expected, abs=1e-9)


def test_moments_are_over_views_and_biased() -> None:
    features = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean, variance = moments(features)
    for token in range(3):
        for channel in range(4):
            values = features[:, token, channel].tolist()
            centre = math.fsum(values) / 5
            assert mean[token, channel].item() == pytest.approx(centre)
            spread = math.fsum((value - centre) ** 2 for value in values) / 5
            assert variance[token, channel].item() == pytest.approx(spread)
    assert torch.equal(moments(features[:1])[1], torch.zeros(3, 4))  # one view varies in nothing


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_both_forms_of_alignment(layers: int) -> None:
    generator = torch.Generator().manual_seed(layers)
    features = [torch.randn(6, 3, 4, generator=generator, dtype=torch.float64) for _ in range(layers)]
    means = [torch.randn(3, 4, generator=generator, dtype=torch.float64) for _ in range(layers)]
    variances = [torch.rand(3, 4, generator=generator, dtype=torch.float64) for _ in range(layers)]
    mean_sums, variance_sums = [], []
    for feature, mean, variance in zip(features, means, variances, strict=True):
        own = feature.sum(dim=0) / 6
        own_variance = ((feature - own) ** 2).sum(dim=0) / 6
        mean_sums.append((own - mean).abs().sum().item())
        variance_sums.append((own_variance - variance).abs().sum().item())
    printed = sum(mean_sums + variance_sums) / layers
    assert align_paper(features, means, variances).item() == pytest.approx(printed)
    published = 100 / 3 * sum(0.5 * total / 12 for total in mean_sums + variance_sums)
    assert align_promptalign(features, means, variances).item() == pytest.approx(published)


@pytest.mark.parametrize("align", [align_promptalign, align_paper])
def test_alignment_needs_statistics_of_every_block(align: Callable[..., torch.Tensor]) -> None:
    blocks = [torch.ones(2, 3, 4), torch.ones(2, 3, 4)]
    with pytest.raises(ValueError, match="zip"):
        align(blocks, [torch.ones(3, 4)], [torch.ones(3, 4)])
