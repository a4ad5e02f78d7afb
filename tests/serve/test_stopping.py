"""SIGTERM under load."""

from __future__ import annotations

from pathlib import Path

from taps.model.clip import Clip
from tests.serve.stopping import stopped
from tests.serve.zygote import Zygote


def test_told_to_stop_under_load(zygote: Zygote, tmp_path: Path, tiny: Clip) -> None:
    found = stopped(zygote, tmp_path, tiny, clients=4)
    assert found["acknowledged"] >= 4
