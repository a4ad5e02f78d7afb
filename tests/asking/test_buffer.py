"""The buffer against Algorithm 2 written as one filter after another."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.asking.buffer import (
    EVICTIONS,
    Buffer,
    choose_age_uncertainty,
    choose_oldest,
    choose_random_victim,
    choose_victim,
)
from taps.errors import QueryError, SettingsError, StateError

# Few values, so that classes, means and losses tie; 0.1 + 0.2 + 0.3 depends on the order when summed naively.
losses = st.one_of(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.5]), st.sampled_from([0.1, 0.2]), st.floats(0, 20))
sample = st.tuples(st.integers(0, 3), losses)
samples = st.lists(sample, min_size=1, max_size=30)


def algorithm_2(labels, losses, ages):
    """Step by step as printed, one filter after another."""
    counts = Counter(labels)
    largest = [label for label in counts if counts[label] == max(counts.values())]
    means = {
        c: math.fsum(x for y, x in zip(labels, losses, strict=True) if y == c) / counts[c] for c in largest
    }
    classes = [c for c in largest if means[c] == min(means.values())]
    inside = [i for i, label in enumerate(labels) if label in classes]
    lowest = [i for i in inside if losses[i] == min(losses[j] for j in inside)]
    return max(lowest, key=lambda i: ages[i])


@given(samples, st.randoms())
def test_choose_victim_is_algorithm_2(samples, random):
    labels, losses = zip(*samples, strict=True)
    ages = random.sample(range(100), len(samples))
    assert choose_victim(labels, losses, ages) == algorithm_2(labels, losses, ages)


@given(samples, st.randoms())
def test_the_victim_does_not_depend_on_the_order_of_the_samples(samples, random):
    rows = [(label, loss, age) for age, (label, loss) in enumerate(samples)]
    shuffled = random.sample(rows, len(rows))
    victims = [choose_victim(*zip(*given, strict=True)) for given in (rows, shuffled)]
    assert rows[victims[0]] == shuffled[victims[1]]


@pytest.mark.parametrize(
    ("labels", "losses", "ages", "victim"),
    [
        ([0, 0, 1], [0.9, 0.8, 0.1], [1, 2, 3], 1),  # one largest class: its lowest loss
        ([0, 0, 1, 1], [0.1, 0.9, 0.2, 0.3], [1, 2, 3, 4], 2),  # the lower mean, not the lowest loss
        ([0, 0, 1, 1], [0.1, 0.4, 0.2, 0.3], [1, 2, 3, 4], 0),  # equal means: the lowest loss
        ([0, 1], [0.5, 0.5], [1, 2], 1),  # all equal: the oldest
        ([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.3, 0.3, 0.2, 0.1], [1, 2, 3, 4, 5, 6], 5),  # sums that round apart
        ([0, 0, 1], [math.nan, 0.2, 0.0], [1, 2, 3], 0),  # NaN goes first
        ([0, 0, 1], [math.inf, 0.2, 0.0], [1, 2, 3], 1),
        ([0, 0, 1, 1], [1e308, 1e308, 5.0, 6.0], [1, 2, 3, 4], 2),  # a sum beyond the largest float
    ],
)
def test_victims_worked_out_by_hand(labels, losses, ages, victim):
    assert choose_victim(labels, losses, ages) == victim


@given(samples)
def test_age_uncertainty_prefers_old_and_well_known_samples_of_a_largest_class(samples):
    labels, losses = zip(*samples, strict=True)
    ages = list(range(len(samples), 0, -1))
    victim = choose_age_uncertainty(labels, losses, ages)
    counts = Counter(labels)
    assert counts[labels[victim]] == max(counts.values())

    def staleness(i):
        return ages[i] / len(samples) + math.exp(-losses[i])

    candidates = [i for i in range(len(samples)) if counts[labels[i]] == max(counts.values())]
    assert staleness(victim) == pytest.approx(max(map(staleness, candidates)))


def test_random_victims_are_uniform_over_classes_then_over_samples():
    rng = np.random.default_rng(0)
    labels = [0, 1, 1, 1]
    drawn = Counter(choose_random_victim(labels, rng) for _ in range(6000))
    assert drawn[0] / 6000 == pytest.approx(1 / 2, abs=0.03)
    for i in (1, 2, 3):
        assert drawn[i] / 6000 == pytest.approx(1 / 6, abs=0.03)


def test_choose_oldest():
    assert choose_oldest([3, 9, 9, 1]) == 1


@pytest.mark.parametrize("choose", [choose_victim, choose_age_uncertainty])
def test_no_samples_or_ragged_ones_are_refused(choose):
    with pytest.raises(SettingsError):
        choose([], [], [])
    with pytest.raises(SettingsError):
        choose([0, 1], [0.5], [1, 2])


def expected_victim(eviction, entries, rng):
    """Index of the victim among `entries`, by the pure functions."""
    labels = [entry.label for entry in entries]
    losses = [entry.loss for entry in entries]
    ages = [entries[-1].order + 1 - entry.order for entry in entries]
    if eviction == "balanced":
        return algorithm_2(labels, losses, ages)
    if eviction == "age_uncertainty":
        return choose_age_uncertainty(labels, losses, ages)
    return choose_oldest(ages) if eviction == "oldest" else choose_random_victim(labels, rng)


actions = st.lists(
    st.one_of(
        sample.map(lambda row: ("add", row)),
        st.tuples(st.just("losses"), st.randoms()),
        st.tuples(st.just("remove"), st.integers(0, 50)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("eviction", EVICTIONS)
@given(capacity=st.integers(0, 8), actions=actions)
def test_every_eviction_is_the_pure_functions_choice(eviction, capacity, actions):
    buffer, rng = Buffer(capacity, eviction, seed=5), np.random.default_rng(5)
    was_full = capacity == 0
    for id, (action, what) in enumerate(actions):
        before = buffer.entries()
        if action == "add":
            label, loss = what
            evicted = buffer.add(id, label, loss, payload=f"payload {id}")
            if len(before) == capacity > 0:
                assert evicted == before[expected_victim(eviction, before, rng)]
                before.remove(evicted)
            else:
                assert evicted is None
            if capacity:
                newest = buffer.entries()[-1]
                assert (newest.id, newest.label, newest.loss) == (id, label, loss)
                assert buffer.entries()[:-1] == before
        elif action == "losses":
            new = [what.choice([0.1, 0.2, 0.3]) for _ in before]
            buffer.set_losses(new)
            assert [entry.loss for entry in buffer.entries()] == new
        elif before:
            gone = before[what % len(before)]
            assert buffer.remove(gone.id) == gone
            before.remove(gone)
            assert buffer.entries() == before
        assert len(buffer) == len(buffer.entries()) <= capacity
        was_full = was_full or len(buffer) == capacity
        assert buffer.ever_full == was_full
        assert buffer.full == (len(buffer) == capacity)
        assert buffer.counts() == Counter(entry.label for entry in buffer.entries())
        assert all(entry.payload == f"payload {entry.id}" for entry in buffer.entries())


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_a_long_stream_is_evicted_as_the_pure_functions_would(eviction):
    buffer, rng, stream = Buffer(40, eviction, seed=5), np.random.default_rng(5), np.random.default_rng(6)
    for id in range(600):
        before = buffer.entries()
        evicted = buffer.add(id, int(stream.integers(3)), int(stream.integers(20)) / 19, None)
        if evicted is not None:
            assert evicted is before[expected_victim(eviction, before, rng)]


@pytest.mark.parametrize("eviction", EVICTIONS)
@given(samples=samples, capacity=st.integers(0, 6), stop=st.integers(0, 30))
def test_a_buffer_saved_and_loaded_goes_on_the_same(eviction, samples, capacity, stop):
    def feed(buffer, rows, start):
        return [buffer.add(id, *row, payload=id) for id, row in enumerate(rows, start=start)]

    whole, first, second = (Buffer(capacity, eviction, seed=seed) for seed in (3, 3, 99))
    expected = feed(whole, samples, 0)
    evicted = feed(first, samples[:stop], 0)
    state = json.loads(json.dumps(first.state_dict(), allow_nan=False))
    second.load_state_dict(state, [entry.payload for entry in first.entries()])
    evicted += feed(second, samples[stop:], len(samples[:stop]))
    assert evicted == expected
    assert second.entries() == whole.entries()
    assert second.state_dict() == whole.state_dict()


def test_a_hundred_thousand_samples_are_evicted_as_the_pure_function_would():
    rng = np.random.default_rng(0)
    buffer = Buffer(100_000)
    labels, values = rng.integers(50, size=100_000).tolist(), rng.integers(1000, size=100_000) / 999
    for id, (label, loss) in enumerate(zip(labels, values.tolist(), strict=True)):
        buffer.add(id, label, loss, None)
    entries = buffer.entries()
    victim = choose_victim([e.label for e in entries], [e.loss for e in entries], [-e.order for e in entries])
    evicted = buffer.add(-1, 0, 0.5, None)
    assert evicted is entries[victim]


def test_a_sample_with_a_loss_of_nan_goes_first_and_harms_nothing():
    buffer = Buffer(3)
    for id, (label, loss) in enumerate([(0, 0.1), (0, math.nan), (1, 0.5)]):
        buffer.add(id, label, loss, None)
    evicted = [buffer.add(id, label, 0.3, None).id for id, label in ((3, 1), (4, 1))]
    assert evicted == [1, 3]


def test_ids_are_held_once():
    buffer = Buffer(2)
    buffer.add(7, 0, 0.1, None)
    with pytest.raises(QueryError):
        buffer.add(7, 1, 0.1, None)
    with pytest.raises(QueryError):
        buffer.remove(8)
    buffer.remove(7)
    assert buffer.add(7, 1, 0.1, None) is None


def test_numpy_labels_and_losses_leave_plain_numbers_in_the_state():
    buffer = Buffer(2)
    buffer.add(np.int64(1), np.int64(0), np.float32(0.5), None)
    json.dumps(buffer.state_dict())


@pytest.mark.parametrize(("capacity", "eviction"), [(-1, "balanced"), (1.5, "balanced"), (3, "newest")])
def test_bad_settings_are_refused(capacity, eviction):
    with pytest.raises(SettingsError):
        Buffer(capacity, eviction)


def test_losses_must_match_the_samples():
    buffer = Buffer(2)
    buffer.add(1, 0, 0.5, None)
    with pytest.raises(SettingsError):
        buffer.set_losses([0.1, 0.2])


def test_a_state_of_another_buffer_is_refused():
    buffer = Buffer(2)
    buffer.add(1, 0, 0.5, "image")
    with pytest.raises(StateError):
        Buffer(3).load_state_dict(buffer.state_dict(), ["image"])
    with pytest.raises(StateError):
        Buffer(2, "oldest").load_state_dict(buffer.state_dict(), ["image"])
    with pytest.raises(StateError):
        Buffer(2).load_state_dict(buffer.state_dict(), [])


@pytest.mark.parametrize(("added", "removed", "ever_full"), [(2, 1, True), (2, 0, True), (1, 0, False)])
def test_whether_it_was_ever_full_is_saved_and_not_whether_it_is(added, removed, ever_full):
    buffer, other = Buffer(capacity=2), Buffer(capacity=2)
    for id in range(added):
        buffer.add(id, 0, 0.5, payload=None)
    for id in range(removed):
        buffer.remove(id)
    other.load_state_dict(json.loads(json.dumps(buffer.state_dict())), [None] * len(buffer))
    assert other.ever_full is buffer.ever_full is ever_full


@pytest.mark.parametrize("choose", [choose_victim, choose_age_uncertainty])
@pytest.mark.parametrize(
    "ragged", [([0, 1], [0.5, 0.5], [1]), ([0, 1], [0.5], [1, 2]), ([0], [0.5, 0.5], [1, 2])]
)
def test_one_of_each_is_needed_for_every_sample(choose, ragged):
    with pytest.raises(SettingsError, match=r"^Labels, losses and ages differ in length;"):
        choose(*ragged)
    with pytest.raises(SettingsError, match=r"^The buffer is empty;"):
        choose([], [], [])


def test_of_samples_alike_in_everything_the_first_goes():
    for choose in (choose_victim, choose_age_uncertainty):
        assert choose([0, 0, 0], [0.5, 0.5, 0.5], [2, 2, 2]) == 0


def test_a_loss_that_cannot_be_counts_as_nothing():
    assert choose_victim([0, 0, 0], [-math.inf, 0.2, -1.0], [1, 2, 3]) == 2
    assert choose_victim([0, 0, 0], [math.nan, 0.2, -1.0], [1, 2, 3]) == 2


def test_orders_count_insertions_and_go_on_after_evictions():
    buffer = Buffer(3)
    for id in range(10):
        buffer.add(id, 0, 1.0 - 0.1 * id, None)
    assert [(entry.id, entry.order) for entry in buffer.entries()] == [(0, 0), (1, 1), (9, 9)]
    assert buffer.state_dict()["next_order"] == 10
    assert 9 in buffer
    assert 8 not in buffer


def test_refusals_say_which_sample_and_how_many():
    buffer = Buffer(2)
    buffer.add(7, 0, 0.5, "image")
    with pytest.raises(QueryError, match=r"^Sample 7 is in the buffer already;"):
        buffer.add(7, 0, 0.5, "image")
    with pytest.raises(QueryError, match=r"^Sample 8 is not in the buffer;"):
        buffer.remove(8)
    with pytest.raises(SettingsError, match=r"^2 losses were given for 1 samples;"):
        buffer.set_losses([0.1, 0.2])
    with pytest.raises(
        StateError, match=r"^The saved buffer holds 2 samples with eviction 'balanced', this one 3"
    ):
        Buffer(3).load_state_dict(buffer.state_dict(), ["image"])
    with pytest.raises(StateError, match=r"^0 payloads were given for 1 saved samples"):
        Buffer(2).load_state_dict(buffer.state_dict(), [])
    with pytest.raises(ValueError, match="zip"):  # a column that was cut
        Buffer(2).load_state_dict(buffer.state_dict() | {"orders": []}, ["image"])
    for capacity, eviction, told in (
        (-1, "oldest", "A buffer of -1 samples"),
        (1, "newest", "eviction='newest'"),
    ):
        with pytest.raises(SettingsError, match=f"^{told}"):
            Buffer(capacity, eviction)


def test_chance_begins_at_nought_unless_told_and_ways_to_evict_are_listed():
    plain, told = Buffer(2, "random"), Buffer(2, "random", seed=0)
    for id in range(30):
        assert plain.add(id, id % 3, 0.5, None) == told.add(id, id % 3, 0.5, None)
    listed = r"choose one of balanced, random, oldest, age_uncertainty\.$"
    with pytest.raises(SettingsError, match=listed):
        Buffer(2, "newest")
