"""The memory of a run is its own: what others let go of, or hold, does not count."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch

from taps.session.memory_peak import (
    CLEAR,
    first_image_done,
    peak_memory_mb,
    peak_rss_mb,
    reset_peak,
    run_memory_mb,
    tensors_mb,
)

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(sys.platform != "linux" or not CLEAR.exists(), reason="needs Linux")


def alone(check: Callable[[], None]) -> None:
    """Check in a process of its own: in one that has run other tests, memory they left is used again."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(check).result()


def test_what_was_let_go_of_before_does_not_count() -> None:
    alone(let_go_of_before)


def let_go_of_before() -> None:
    reset_peak(CPU)
    before = peak_rss_mb()
    # Small tensors, the last of them kept: the allocator does not give such memory back by itself.
    many = [torch.ones(5000) for _ in range(5000)]
    last = many[-1]
    del many
    assert peak_rss_mb() > before + 80
    reset_peak(CPU)
    assert peak_rss_mb() < before + 40
    assert last.sum() == 5000


def test_which_run_came_first_does_not_matter() -> None:
    alone(runs_in_either_order)


def runs_in_either_order() -> None:
    """A run with 20 MB of weights and 40 MB of work, before and after one that leaves 200 MB behind."""

    def run() -> float:
        first_image_done(CPU)
        np.ones(40 << 17).sum()
        return run_memory_mb(CPU) - others

    weights, others = torch.ones(20 << 18), tensors_mb() - 20
    first = run()
    left = np.ones(200 << 17)
    assert run() == pytest.approx(first, abs=8)
    assert first == pytest.approx(60, abs=8)
    assert peak_memory_mb(CPU) > left.nbytes / 2**20 + 60
    assert weights.sum() == 20 << 18


def test_a_storage_counts_once() -> None:
    gc.collect()  # or garbage of other tests goes while this one counts
    before = tensors_mb()
    whole = torch.zeros(3 << 18)
    parts = whole.view(3, -1)[1:], whole[7:]
    assert tensors_mb() - before == pytest.approx(3, abs=0.5)
    del whole, parts
    assert tensors_mb() == pytest.approx(before, abs=0.5)
