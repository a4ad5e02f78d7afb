"""The store's own input and output made to fail; every single call in turn is in tests/chaos."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.serve import faults


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (Debian: apt-get install gcc)")
def test_nothing_acknowledged_is_lost_when_writes_fail(tmp_path: Path) -> None:
    found = faults.run(tmp_path, step=47)
    assert found["calls"] > 50
    assert found["tried"] >= 4
