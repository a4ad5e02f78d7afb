"""Source statistics: step moments against all values at once, files, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taps.errors import SettingsError, StateError
from taps.model.prompts.source import RunningMoments, SourceStats, merge_stats


def statistics() -> SourceStats:
    generator = torch.Generator().manual_seed(0)
    return SourceStats(
        layers=(0, 2),
        count=10,
        mean=torch.randn(2, 3, 4, generator=generator),
        variance=torch.rand(2, 3, 4, generator=generator),
        classes=("Cat", "hot dog"),
        class_counts=torch.tensor([4, 6]),
        class_means=torch.randn(2, 2, 3, 4, generator=generator),
        class_variances=torch.rand(2, 2, 3, 4, generator=generator),
        model="abc",
        prompts="def",
    )


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.floats(-1e6, 1e6),
    st.integers(0, 2**32 - 1),
)
def test_batches_give_the_moments_of_all_values(sizes: list[int], offset: float, seed: int) -> None:
    """Also far from zero, where a sum of squares would lose every digit."""
    rng = np.random.default_rng(seed)
    batches = [rng.normal(size=(size, 3)) + offset for size in sizes]
    running = RunningMoments()
    for batch in batches:
        running.add(torch.from_numpy(batch))
    everything = np.concatenate(batches)
    assert running.count == len(everything)
    assert np.allclose(running.mean.numpy(), everything.mean(axis=0), rtol=1e-12, atol=1e-12)
    assert np.allclose(running.variance.numpy(), everything.var(axis=0), rtol=1e-7, atol=1e-9)


@given(st.integers(0, 6), st.integers(0, 6))
def test_shards_merge_into_the_whole(left: int, right: int) -> None:
    values = torch.randn(left + right, 2, generator=torch.Generator().manual_seed(left * 7 + right))
    parts = []
    for part in (values[:left], values[left:]):
        running = RunningMoments()
        if len(part):
            running.add(part)
        parts.append(running)
    parts[0].merge(parts[1].count, parts[1].mean, parts[1].spread)
    assert parts[0].count == left + right
    if left + right:
        assert torch.allclose(parts[0].mean, values.double().mean(dim=0))
        assert torch.allclose(parts[0].variance, values.double().var(dim=0, correction=0))


def test_single_precision_values_are_summed_in_double() -> None:
    running = RunningMoments()
    for _ in range(10_000 // 100):
        running.add(torch.full((100, 1), 0.1))
    assert running.mean.dtype == torch.float64
    assert running.mean.item() == pytest.approx(float(np.float32(0.1)), rel=1e-14)
    assert running.variance.item() == pytest.approx(0, abs=1e-20)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_files_keep_halves_or_every_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    stats = statistics()
    stats = replace(stats, mean=stats.mean.to(dtype))
    stats.save(tmp_path / "exact.safetensors", dtype=None)
    exact = SourceStats.load(tmp_path / "exact.safetensors")
    stats.save(tmp_path / "half.safetensors")
    half = SourceStats.load(tmp_path / "half.safetensors")
    assert torch.equal(exact.mean, stats.mean)
    assert torch.equal(exact.class_variances, stats.class_variances)
    assert torch.equal(half.mean, stats.mean.half().float())
    for loaded in (exact, half):
        assert loaded.layers == (0, 2)
        assert loaded.count == 10
        assert loaded.classes == stats.classes
        assert torch.equal(loaded.class_counts, stats.class_counts)
        assert (loaded.model, loaded.prompts) == ("abc", "def")
    assert exact.fingerprint == stats.fingerprint != half.fingerprint


def test_statistics_of_another_model_or_prompts_are_refused() -> None:
    stats = statistics()
    stats.check(model="abc", prompts="def")
    with pytest.raises(StateError, match="made with model abc, not xyz"):
        stats.check(model="xyz", prompts="def")
    with pytest.raises(StateError, match="made with prompts def, not none"):
        stats.check(model="abc", prompts="")


def same(found: tuple[torch.Tensor, torch.Tensor], stats: SourceStats, row: int) -> bool:
    return torch.equal(found[0], stats.class_means[row]) and torch.equal(found[1], stats.class_variances[row])


def test_classes_are_found_by_name() -> None:
    stats = statistics()
    hot_dog, cat = stats.of_classes(["hot dog", "cat"])
    assert same(hot_dog, stats, 1)
    assert same(cat, stats, 0)
    with pytest.raises(SettingsError, match="such as 'ship'"):
        stats.of_classes(["cat", "ship", "plane"])


def test_two_classes_of_one_name_keep_statistics_of_their_own() -> None:
    stats = replace(statistics(), classes=("missile", "missile"), numbers=(1, 0))
    first, second = stats.of_classes(["missile", "missile"])
    assert same(first, stats, 1)
    assert same(second, stats, 0)
    # Where the stream has one class of that name, nobody knows which: it gets those of all their images.
    ((mean, variance),) = stats.of_classes(["Missile"])
    means, weights = stats.class_means.double(), torch.tensor([0.4, 0.6])[:, None, None, None]
    expected = (weights * means).sum(0)
    assert torch.allclose(mean, expected)
    spread = (weights * (stats.class_variances.double() + (means - expected) ** 2)).sum(0)
    assert torch.allclose(variance, spread)


def test_merged_parts_keep_classes_of_one_name_apart() -> None:
    one = replace(statistics(), classes=("missile", "missile"), numbers=(0, 1))
    other = replace(one, classes=("missile",), numbers=(1,), class_counts=one.class_counts[1:], count=7)
    other = replace(other, class_means=one.class_means[1:], class_variances=one.class_variances[1:])
    merged = merge_stats([one, other])
    assert (merged.classes, merged.numbers) == (("missile", "missile"), (0, 1))
    assert merged.class_counts.tolist() == [4, 12]


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "stats.safetensors").write_bytes(b"something else")
    for name in ("stats.safetensors", "absent.safetensors"):
        with pytest.raises(StateError, match="does not hold source statistics"):
            SourceStats.load(tmp_path / name)
