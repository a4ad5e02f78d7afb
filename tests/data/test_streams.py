"""Orders of streams, subsets and few shots."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.data import (
    Dataset,
    Sample,
    domains_in_turn,
    few_shot,
    ordered_by_class,
    stream_order,
    subset_classes,
)
from taps.data.orders import ordered
from taps.data.sources import FolderSource
from taps.errors import DataError, SettingsError
from taps.types import OUTSIDE


def made(labels: list[int], classes: int = 4, domains: str = "") -> Dataset:
    samples = tuple(Sample(f"{i}.jpg", y, domains[i] if domains else "") for i, y in enumerate(labels))
    return Dataset("made", tuple(f"class {c}" for c in range(classes)), samples, FolderSource(Path()))


@given(st.integers(1, 200), st.integers(0, 2**31), st.integers(1, 300))
def test_a_stream_is_a_seeded_permutation(n: int, seed: int, limit: int) -> None:
    order = stream_order(n, seed)
    assert sorted(order.tolist()) == list(range(n))
    assert stream_order(n, seed, limit).tolist() == order[:limit].tolist()


def test_seeds_differ() -> None:
    assert stream_order(50, 1).tolist() != stream_order(50, 2).tolist()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(0, 99))
def test_class_by_class(labels: list[int], seed: int) -> None:
    order = ordered_by_class(made(labels), seed)
    assert sorted(order.tolist()) == list(range(len(labels)))
    seen = [labels[i] for i in order]
    changes = sum(a != b for a, b in pairwise(seen))
    assert changes == len(set(labels)) - 1


@given(
    st.lists(st.integers(-1, 3), min_size=1, max_size=60).filter(lambda labels: max(labels) >= 0),
    st.sampled_from(["shuffled", "by_class", "dirichlet:0.1", "dirichlet:5"]),
    st.integers(0, 99),
    st.integers(1, 70),
)
def test_orders_by_name_hold_every_image_once_and_count_changes(
    labels: list[int], kind: str, seed: int, limit: int
) -> None:
    if all(labels[i] == OUTSIDE for i in stream_order(len(labels), seed, limit)):
        return
    order, phase = ordered(made(labels), kind, seed, limit)
    assert sorted(order.tolist()) == sorted(stream_order(len(labels), seed, limit).tolist())
    assert phase[0] == 0
    assert set(np.diff(phase).tolist()) <= {0, 1}
    if kind == "by_class":  # one class a phase, images of none anywhere
        for p in range(phase[-1] + 1):
            assert len({labels[i] for i in order[phase == p]} - {OUTSIDE}) == 1
    elif kind == "shuffled":
        assert not phase.any()


def test_shares_change_the_more_the_lower_the_concentration() -> None:
    data = made([i % 4 for i in range(400)])
    spread = {}
    for kind in ("dirichlet:0.05", "dirichlet:100"):
        order, phase = ordered(data, kind, seed=1)
        shares = [
            np.bincount([data.samples[i].label or 0 for i in order[phase == p]], minlength=4)
            for p in range(phase[-1] + 1)
        ]
        spread[kind] = np.mean([share.max() / share.sum() for share in shares])
    assert spread["dirichlet:0.05"] > 0.7
    assert spread["dirichlet:100"] < 0.45


@pytest.mark.parametrize("kind", ["sorted", "by_class:2", "dirichlet:0", "dirichlet:x", "dirichlet:inf"])
def test_unknown_orders_are_refused(kind: str) -> None:
    with pytest.raises(SettingsError, match=kind):
        ordered(made([0, 1]), kind, 0)


def test_domains_are_phases_and_a_limit_keeps_all_of_them() -> None:
    data = made([0, 1] * 50, domains="abcd" * 25)
    order, phase = ordered(data, "by_domain", seed=2, limit=40)
    assert [data.samples[i].domain for i in order] == sorted(data.samples[i].domain for i in order)
    assert len(order) == 40
    assert phase[-1] == 3


def test_domain_after_domain() -> None:
    data = made([0, 1] * 20, domains="ba" * 20)
    order = domains_in_turn(data, 3)
    assert [data.samples[i].domain for i in order] == ["a"] * 20 + ["b"] * 20
    assert order[:20].tolist() != sorted(order[:20].tolist())
    with pytest.raises(DataError, match="no domains"):
        domains_in_turn(made([0, 1]), 0)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(2, 4), st.integers(0, 99))
def test_a_subset_of_classes_keeps_names(labels: list[int], k: int, seed: int) -> None:
    whole, part = made(labels), subset_classes(made(labels), k, seed)
    assert len(part.classes) == k
    name_of = {s.path: whole.classes[s.label] for s in whole.samples if s.label is not None}
    expected = [(key, name) for key, name in name_of.items() if name in part.classes]
    assert [(s.path, part.classes[s.label]) for s in part.samples if s.label is not None] == expected


def test_too_many_classes() -> None:
    with pytest.raises(DataError, match="5 classes of made are not possible"):
        subset_classes(made([0]), 5, 0)


def test_few_shots() -> None:
    labels = [0, 1, 2, 3] * 10
    chosen = few_shot(made(labels), 3, seed=7)
    assert Counter(labels[i] for i in chosen) == {0: 3, 1: 3, 2: 3, 3: 3}
    assert len(set(chosen)) == 12
    assert chosen == few_shot(made(labels), 3, seed=7)
    assert chosen != few_shot(made(labels), 3, seed=8)
    with pytest.raises(DataError, match=r"fewer than 2 images: class 1 \(1\), class 3 \(0\)"):
        few_shot(made([0, 0, 1, 2, 2]), 2, 0)
    with pytest.raises(DataError, match="at least one"):
        few_shot(made([0]), 0, 0)


@pytest.mark.parametrize(("n", "limit"), [(0, None), (3, 0), (3, -1)])
def test_streams_of_nothing(n: int, limit: int | None) -> None:
    with pytest.raises(DataError, match="one"):
        stream_order(n, 0, limit)


def test_taking_keeps_order() -> None:
    data = made([0, 1, 2, 3])
    assert [s.path for s in data.take(np.array([3, 0])).samples] == ["3.jpg", "0.jpg"]


def balanced_set(classes: int, each: int) -> Dataset:
    return made([label for label in range(classes) for _ in range(each)], classes)


def test_statas_stream_has_as_many_slots_as_batches_and_at_most_as_many_as_classes() -> None:
    for classes, each, slots in ((40, 32, 10), (5, 300, 5), (4, 20, 1)):
        data = balanced_set(classes, each)
        order, phase = ordered(data, "statA:50", seed=1)  # so even that every slot is filled
        assert sorted(order.tolist()) == list(range(classes * each))
        assert phase[-1] + 1 == slots


def test_statas_classes_are_cut_in_file_order_and_the_rarer_the_lower_the_concentration() -> None:
    data = balanced_set(20, 100)
    held = {}
    for text in ("0.1", "0.01", "0.001"):
        slots_of_class = []
        for seed in range(10):
            order, phase = ordered(data, f"statA:{text}", seed)
            at = np.empty(2000, np.int64)
            at[order] = phase
            for label in range(20):
                own = at[100 * label : 100 * (label + 1)]
                assert (np.diff(own) >= 0).all(), "cut by cumulated shares, in file order"
                slots_of_class.append(len(set(own.tolist())))
        held[text] = np.mean(slots_of_class)
    assert held["0.1"] > held["0.01"] > held["0.001"] >= 1
    assert held["0.001"] < 1.1
    # Expected slots with half an image or more: Σ P(Beta(γ, 14γ) ≥ 0.005) over 15 slots, by 10⁵ draws.
    shares = np.random.default_rng(0).dirichlet(np.full(15, 0.1), 100_000)
    assert held["0.1"] == pytest.approx((shares >= 0.005).sum(axis=1).mean(), rel=0.1)


def test_statas_slots_are_shuffled_inside() -> None:
    order, phase = ordered(balanced_set(20, 100), "statA:0.1", seed=3)
    longest = np.bincount(phase).argmax()
    inside = order[phase == longest]
    assert (np.diff(inside) < 0).mean() > 0.3


def test_statas_separate_stream_has_one_class_a_phase() -> None:
    data = balanced_set(6, 30)
    order, phase = ordered(data, "statA:separate", seed=1)
    assert [set((order[phase == p] // 30).tolist()) for p in range(6)] != [{p} for p in range(6)]
    assert all(len(set((order[phase == p] // 30).tolist())) == 1 for p in range(6))


def test_statas_tasks_have_so_many_images_of_so_many_classes_drawn_alike() -> None:
    data = balanced_set(20, 50)
    found = []
    for seed in range(300):
        order, _ = ordered(data, "statA_batch:64:1-4", seed)
        classes = set((order // 50).tolist())
        assert len(set(order.tolist())) == len(order) == min(64, 50 * len(classes))
        found.append(len(classes))
    assert np.allclose(np.bincount(found)[1:] / 300, 0.25, atol=0.07)


def test_correlated_streams_fill_every_slot_and_keep_classes_together() -> None:
    data = balanced_set(10, 100)
    for seed in range(5):
        order, _ = ordered(data, "correlated:0.1", seed)
        assert sorted(order.tolist()) == list(range(1000))
        labels = order // 100
        runs = 1 + int((np.diff(labels) != 0).sum())
        assert runs < 60, "a shuffled stream of ten classes has 900 runs"
    _, phase = ordered(data, "correlated:0.1", seed=1)
    sizes = np.bincount(phase)
    assert len(sizes) == 10
    assert sizes.min() >= 10
    assert sizes.max() <= 200, "a slot that holds N/K takes no more: N/K and one class at most"
    with pytest.raises(DataError, match="10 images in each of 10 slots"):
        ordered(balanced_set(10, 5), "correlated:0.1", seed=1)


def test_a_long_tail_falls_from_all_images_of_a_class_to_one_in_so_many() -> None:
    data = balanced_set(11, 100)
    order, phase = ordered(data, "longtail:100", seed=2)
    counts = sorted(np.bincount(order // 100, minlength=11).tolist(), reverse=True)
    assert counts == [round(100 * 100 ** (-rank / 10)) for rank in range(11)]
    assert len(set(order.tolist())) == len(order)
    assert not phase.any()


def test_a_protocol_with_a_limit_is_of_the_images_a_shuffled_stream_begins_with() -> None:
    data = balanced_set(5, 200)
    order, _ = ordered(data, "statA:0.1", seed=4, limit=300)
    assert sorted(order.tolist()) == sorted(stream_order(1000, 4, 300).tolist())


@pytest.mark.parametrize(
    "kind", ["statA:0", "statA:x", "statA_batch:64", "statA_batch:64:4-1", "correlated:-1", "longtail:1"]
)
def test_orders_of_papers_with_bad_numbers_are_refused(kind: str) -> None:
    with pytest.raises(SettingsError, match=kind.partition(":")[0]):
        ordered(balanced_set(4, 20), kind, 0)


def test_an_order_by_labels_is_refused_where_there_are_none() -> None:
    with pytest.raises(DataError, match="by_class"):
        ordered(made([None] * 6), "by_class", seed=0)
    assert len(ordered(made([None] * 6), "shuffled", seed=0)[0]) == 6
