"""The memory of a run is its own: what earlier ones let go of does not count."""

from __future__ import annotations

import sys

import pytest
import torch

from taps.stream.peak import CLEAR, peak_rss_mb, reset_peak


@pytest.mark.skipif(sys.platform != "linux" or not CLEAR.exists(), reason="needs Linux")
def test_what_was_let_go_of_before_does_not_count() -> None:
    reset_peak(torch.device("cpu"))
    before = peak_rss_mb()
    # Small tensors, the last of them kept: the allocator does not give such memory back by itself.
    many = [torch.ones(5000) for _ in range(5000)]
    last = many[-1]
    del many
    assert peak_rss_mb() > before + 80
    reset_peak(torch.device("cpu"))
    assert peak_rss_mb() < before + 40
    assert last.sum() == 5000
