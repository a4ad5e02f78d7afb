"""Devices and precisions by name."""

from __future__ import annotations

import pytest
import torch

from taps import load_clip
from taps.clip.place import find_device, find_dtype
from taps.errors import SettingsError


def test_precisions_have_the_names_people_use() -> None:
    assert load_clip("tiny", dtype="fp64").dtype == torch.float64
    assert find_dtype("bfloat16") == find_dtype("bf16") == find_dtype(torch.bfloat16) == torch.bfloat16
    for unknown in ("fp8", torch.int64):
        with pytest.raises(SettingsError, match="use fp32, bf16"):
            find_dtype(unknown)


def test_a_device_that_is_not_there_is_a_sentence() -> None:
    assert find_device("cpu").type == "cpu"
    for absent in ("abacus", "cuda:99"):
        with pytest.raises(SettingsError, match=f"'{absent}' cannot be used here"):
            find_device(absent)
