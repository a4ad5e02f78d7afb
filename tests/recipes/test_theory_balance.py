"""The vectorised buffer against `choose_victim`, and Proposition 1 where it holds and where it fails."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from balance import (
    LOSS_UNITS,
    draw_labels,
    draw_losses,
    first_time,
    lowest_imbalance,
    samples_until_bound_means_anything,
    simulate_balance,
    zipf,
)
from hypothesis import given
from hypothesis import strategies as st

from taps.asking.buffer import choose_victim


def one_stream(labels, losses, classes, capacity):
    """Algorithm 2 on one stream with plain lists."""
    held = list(range(capacity))
    victims, imbalance, largest = [], [], []

    def record():
        counts = Counter(labels[i] for i in held)
        imbalance.append(sum(abs(classes * counts[c] - capacity) for c in range(classes)))
        largest.append(max(counts.values()))

    record()
    for t in range(capacity, len(labels)):
        victim = choose_victim([labels[i] for i in held], [losses[i] for i in held], [-i for i in held])
        victims.append(held.pop(victim))
        held.append(t)
        record()
    return victims, imbalance, largest, Counter(labels[i] for i in held)


@given(
    st.integers(1, 5),
    st.integers(1, 12),
    st.sampled_from([1, 3, 1000, LOSS_UNITS * 5]),
    st.integers(0, 2**32),
)
def test_every_stream_is_evicted_as_choose_victim_would(classes, capacity, loss_values, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=(4, capacity + 25))
    losses = rng.integers(loss_values, size=labels.shape)
    trace = simulate_balance(labels, losses, classes, capacity)
    for stream in range(4):
        victims, imbalance, largest, counts = one_stream(
            labels[stream].tolist(), (losses[stream] / LOSS_UNITS).tolist(), classes, capacity
        )
        assert trace.victims[:, stream].tolist() == victims
        assert trace.imbalance[:, stream].tolist() == imbalance
        assert trace.largest[:, stream].tolist() == largest
        assert trace.counts[stream].tolist() == [counts[c] for c in range(classes)]


@pytest.mark.parametrize(("classes", "capacity"), [(2, 3), (3, 4), (3, 6), (4, 2), (4, 7)])
def test_the_lowest_imbalance_is_that_of_the_best_split(classes, capacity):
    splits = [n for n in product(range(capacity + 1), repeat=classes) if sum(n) == capacity]
    scaled = {n: sum(abs(classes * count - capacity) for count in n) for n in splits}
    lowest = min(scaled.values())
    assert lowest_imbalance(classes, capacity) == lowest
    # Only the most even splits have it, so that equality with it means most even.
    assert all((max(n) - min(n) <= 1) == (value == lowest) for n, value in scaled.items())


def simulate(classes, capacity, shares, streams=60, samples=600, losses="random"):
    rng = np.random.default_rng(0)
    labels = draw_labels(rng, shares, streams, capacity + samples)
    return simulate_balance(labels, draw_losses(rng, losses, labels, classes), classes, capacity)


@pytest.mark.parametrize("losses", ["random", "by class", "equal"])
@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_where_the_classes_divide_the_buffer_the_proposition_holds(losses, exponent):
    trace = simulate(5, 20, zipf(5, exponent), losses=losses)
    rises = np.diff(trace.imbalance, axis=0) > 0
    assert (trace.imbalance[:-1][rises] == 0).all()
    assert (first_time(trace.is_most_even) >= 0).all()
    settled = np.maximum.accumulate(trace.is_most_even, axis=0)
    assert set((trace.imbalance[settled] / 5).tolist()) == {0.0, 2.0}
    assert trace.largest[settled].max() == 5


def test_where_they_do_not_f_rises_from_above_0_and_a_class_is_two_over_its_share():
    classes, capacity, rest = 10, 55, 5
    trace = simulate(classes, capacity, zipf(classes, 0.0))
    change = np.diff(trace.imbalance, axis=0)
    assert (trace.imbalance[:-1][change > 0] > 0).all()
    assert (change > 0).any()
    assert set(change[change > 0].tolist()) == {2 * rest}  # f rises by 2r/K
    settled = np.maximum.accumulate(trace.is_most_even, axis=0)
    lowest = lowest_imbalance(classes, capacity)
    assert set(trace.imbalance[settled].tolist()) == {lowest, lowest + 2 * rest}
    assert lowest / classes > 2
    assert trace.largest[settled].max() - capacity / classes == 1.5


def test_a_class_that_never_comes_keeps_the_buffer_from_balance():
    shares = np.append(zipf(4, 0.0), 0.0)
    trace = simulate(5, 20, shares)
    assert not trace.is_most_even.any()
    assert (trace.counts[:, 4] == 0).all()
    assert (np.abs(trace.counts[:, :4] - 5) <= 1).all()  # the others share the buffer evenly


def test_a_tail_ends_the_simulation_but_changes_nothing_before():
    rng = np.random.default_rng(1)
    labels = draw_labels(rng, zipf(4, 0.0), 30, 500)
    losses = draw_losses(rng, "random", labels, 4)
    whole, short = (simulate_balance(labels, losses, 4, 8, tail) for tail in (None, 10))
    assert len(short.victims) < len(whole.victims)
    assert (short.victims == whole.victims[: len(short.victims)]).all()
    assert first_time(short.is_most_even).max() == len(short.victims) - 10


def test_labels_follow_their_shares():
    labels = draw_labels(np.random.default_rng(0), np.array([0.5, 0.0, 0.3, 0.2, 0.0]), 100, 1000)
    counts = np.bincount(labels.ravel(), minlength=5) / labels.size
    assert counts == pytest.approx([0.5, 0.0, 0.3, 0.2, 0.0], abs=0.01)
    assert counts[1] == counts[4] == 0.0


def test_first_time_knows_never():
    assert first_time(np.array([[False, True, False], [True, True, False]])).tolist() == [1, 0, -1]


@pytest.mark.parametrize(("rarest", "capacity"), [(0.3, 3), (0.1, 5)])
def test_the_bound_is_vacuous_just_before(rarest, capacity):
    def bound(samples):
        return (1 - rarest) ** (samples - capacity) * sum(math.comb(samples, i) for i in range(capacity + 1))

    needed = samples_until_bound_means_anything(rarest, capacity)
    assert bound(needed) <= 0.05 < bound(needed - 1)
