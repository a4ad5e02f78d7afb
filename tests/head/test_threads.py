"""Numpy's products in one thread: inside, in all of the head, and not afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from threading import Barrier, Thread

import numpy as np
import pytest

from taps.head import threads
from taps.head.experts import Experts
from taps.head.head import Head
from taps.head.linear import Logistic
from taps.head.predictor import Predictor
from taps.head.threads import one_thread, openblas
from taps.head.whitening import FeatureWhitener


@pytest.fixture
def used() -> Iterator[list[int]]:
    """How many threads products were made with; two of them before and after."""
    found = openblas()
    if found is None:
        pytest.skip("this numpy has no OpenBLAS of its own")
    get, put = found
    before, seen = get(), []
    put(2)
    yield seen
    assert get() == 2
    put(before)


def note(monkeypatch, kind: type, name: str, seen: list[int]) -> None:
    """Have a method say how many threads it runs with."""
    inner, found = getattr(kind, name), openblas()
    assert found is not None

    def noting(self, *given, **more):
        seen.append(found[0]())
        return inner(self, *given, **more)

    monkeypatch.setattr(kind, name, noting)


def test_all_of_the_head_has_one_thread(monkeypatch, used):
    for kind, name in ((FeatureWhitener, "see"), (Predictor, "probs"), (Experts, "learn"), (Logistic, "add")):
        note(monkeypatch, kind, name, used)
    head, even = Head(2, 2, bases=1), np.log([[0.5, 0.5]])
    look = head.see(np.eye(2)[[0]], even)
    head.predict(look)
    head.learn(look, 1)
    assert len(used) >= 6
    assert set(used) == {1}


def test_the_last_one_to_leave_puts_it_back_also_after_an_error(used):
    get = openblas()[0]
    entered = Barrier(2, timeout=300)
    left = Barrier(2, timeout=300)

    def stay() -> None:
        with one_thread():
            entered.wait()
            left.wait()
            used.append(get())

    other = Thread(target=stay)
    with suppress(ZeroDivisionError), one_thread():
        other.start()
        entered.wait()
        raise ZeroDivisionError
    used.append(get())  # the other one is still inside
    left.wait()
    other.join()
    assert used == [1, 1]


def test_the_library_of_numpys_wheels_is_found():
    if np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"] != "scipy-openblas":
        pytest.skip("this numpy was built with another library")
    assert openblas() is not None


def test_where_numpy_has_another_library_nothing_is_changed(monkeypatch, tmp_path):
    monkeypatch.setattr(threads.np, "__file__", str(tmp_path / "numpy" / "__init__.py"))
    openblas.cache_clear()
    try:
        assert openblas() is None
        with one_thread():
            pass
    finally:
        openblas.cache_clear()
