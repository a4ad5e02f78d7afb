"""How many processes compute, and which options are refused."""

from __future__ import annotations

import os
import sys

import pytest

from taps.errors import SettingsError
from taps.serve.options import ServeOptions


def test_processes_are_for_the_cpu() -> None:
    cores = os.cpu_count() if sys.platform == "linux" else 0
    assert ServeOptions().processes_on("cpu") == cores
    assert ServeOptions().processes_on("cuda") == 0
    assert [ServeOptions(processes=count).processes_on("cpu") for count in (0, 3)] == [0, 3]
    assert ServeOptions(processes=0).processes_on("cuda") == 0
    with pytest.raises(SettingsError, match="for the CPU"):
        ServeOptions(processes=2).processes_on("cuda")


@pytest.mark.parametrize("wrong", [{"processes": -1}, {"image_hosts": ("http://nas",)}])
def test_what_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match="--"):
        ServeOptions(**wrong)  # type: ignore[arg-type]
