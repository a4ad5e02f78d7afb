"""Order statistics against a sorted list."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.asking.quantiles import QuantileSketch, SlidingWindow

values = st.lists(st.one_of(st.integers(0, 9).map(float), st.floats(-5, 5)), min_size=1, max_size=200)


def rank_error(ordered: list[float], value: float, rank: int) -> int:
    """How far `rank` is from the ranks that `value` really has."""
    first = int(np.searchsorted(ordered, value, "left")) + 1
    last = int(np.searchsorted(ordered, value, "right"))
    assert first <= last, "a value that was never added"
    return max(first - rank, rank - last, 0)


@given(values)
def test_few_values_are_ranked_exactly(values):
    sketch = QuantileSketch()
    for value in values:
        sketch.add(value)
    assert [sketch.at_rank(rank) for rank in range(1, len(values) + 1)] == sorted(values)


@given(values, st.sampled_from([0.01, 0.05, 0.2]))
def test_the_promised_error_holds_for_every_rank(values, error):
    sketch = QuantileSketch(error)
    for count, value in enumerate(values, start=1):
        sketch.add(value)
        assert sketch.count == count
    for rank in range(1, len(values) + 1):
        assert rank_error(sorted(values), sketch.at_rank(rank), rank) <= error * len(values)


@pytest.mark.parametrize("order", ["random", "rising", "falling", "outward"])
def test_memory_stays_small_and_the_error_kept_whatever_the_order(order):
    stream = np.random.default_rng(0).normal(size=30_000)
    if order in ("rising", "falling"):
        stream = np.sort(stream)[:: 1 if order == "rising" else -1]
    elif order == "outward":
        stream = stream[np.argsort(np.abs(stream))]
    sketch = QuantileSketch(error=0.005)
    for value in stream.tolist():
        sketch.add(value)
    assert len(sketch) < 1200
    ordered = np.sort(stream).tolist()
    for rank in range(1, len(ordered), 371):
        assert rank_error(ordered, sketch.at_rank(rank), rank) <= 0.005 * len(ordered)


def test_values_of_which_few_are_distinct_stay_exact():
    stream = np.random.default_rng(0).integers(5, size=5000).astype(float)
    sketch = QuantileSketch(error=0.0005)
    for value in stream.tolist():
        sketch.add(value)
    ordered = np.sort(stream).tolist()
    assert [sketch.at_rank(rank) for rank in range(1, 5001, 83)] == ordered[::83]
    assert len(sketch) <= 5


@given(values, st.integers(1, 20))
def test_a_window_holds_the_last_values(values, size):
    window = SlidingWindow(size)
    for count, value in enumerate(values, start=1):
        window.add(value)
        held = sorted(values[max(0, count - size) : count])
        assert window.count == len(held)
        assert [window.at_rank(rank) for rank in range(1, len(held) + 1)] == held


@pytest.mark.parametrize("make", [lambda: QuantileSketch(0.05), lambda: SlidingWindow(7)])
@given(values=values, stop=st.integers(0, 200))
def test_saved_and_loaded_goes_on_the_same(make, values, stop):
    whole, first, second = make(), make(), make()
    for value in values:
        whole.add(value)
    for value in values[:stop]:
        first.add(value)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for value in values[stop:]:
        second.add(value)
    assert second.state_dict() == whole.state_dict()
    assert second.count == whole.count


def test_neighbours_are_joined_as_far_as_the_error_allows():
    """Of 0, 1, … 9 with an error of a tenth every second value gives its place up, after the tenth value."""
    sketch = QuantileSketch(error=0.1)
    for value in range(9):
        sketch.add(float(value))
    assert sketch.state_dict() == {"rows": [[float(v), 1, 0, 0] for v in range(9)], "until_merge": 1}
    sketch.add(9.0)
    state = sketch.state_dict()
    assert state == {"rows": [[float(v), 1, 1, 0] for v in (1, 3, 5, 7, 9)], "until_merge": 5}
    sketch.add(4.0)  # 4 was joined into 5: how many lie below it is known up to one
    assert sketch.state_dict()["rows"][2] == [4.0, 1, 0, 1]
    again = QuantileSketch(error=0.1)
    again.load_state_dict(state)
    assert again.count == 10
    assert QuantileSketch(error=0.6).state_dict()["until_merge"] == 1


def test_a_window_takes_no_more_than_it_holds_from_a_state():
    window = SlidingWindow(3)
    window.load_state_dict({"recent": [5.0, 1.0, 4.0, 2.0]})
    assert [window.at_rank(rank) for rank in (1, 2, 3)] == [1.0, 2.0, 4.0]
    assert window.state_dict() == {"recent": [1.0, 4.0, 2.0]}
