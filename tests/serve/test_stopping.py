"""SIGTERM under load."""

from __future__ import annotations

from pathlib import Path

from taps.clip import Clip
from tests.serve.stopping import stopped


def test_told_to_stop_under_load(tmp_path: Path, tiny: Clip) -> None:
    found = stopped(tmp_path, tiny, clients=4)
    assert found["acknowledged"] >= 4
