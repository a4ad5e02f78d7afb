"""Several clients at once; fifty for two minutes are in tests/chaos."""

from __future__ import annotations

from pathlib import Path

from taps.model.clip import Clip
from tests.serve.crowd import crowd
from tests.serve.zygote import Zygote


def test_each_stream_is_as_if_alone(zygote: Zygote, tmp_path: Path, tiny: Clip) -> None:
    found = crowd(zygote, tmp_path, tiny, clients=8, streams=2, seconds=0, at_least=5)
    assert found["requests"] == 40
