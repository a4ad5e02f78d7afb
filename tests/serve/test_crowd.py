"""Several clients at once; fifty for two minutes are in tests/chaos."""

from __future__ import annotations

from pathlib import Path

import pytest

from taps.clip import Clip
from taps.serve import store
from tests.serve.crowd import crowd


def test_each_stream_is_as_if_alone(tmp_path: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "RECENT", 10**6)
    found = crowd(tmp_path, tiny, clients=8, streams=2, seconds=0, at_least=5)
    assert found["requests"] == 40
