"""Damaged files are noticed; a thousand places are in tests/chaos."""

from __future__ import annotations

from pathlib import Path

import pytest

from taps.model.clip import Clip
from taps.serve import learner_log
from taps.serve.service import Service
from tests.serve.conftest import beginning
from tests.serve.damage import damaged
from tests.serve.streams import Served, live_through


@pytest.fixture
def rested(open_service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store at rest, with two snapshots that are some images apart."""
    monkeypatch.setattr(learner_log, "EVERY", 10)
    monkeypatch.setattr(learner_log, "WORTH", 0)
    service: Service = open_service(str(tmp_path / "store"), tmp_path / "store")
    service.create(beginning(), "test")
    live_through(Served(service), range(26))
    service.stop()
    return tmp_path / "store"


def test_flipped_bits_and_cut_files(rested: Path, tiny: Clip) -> None:
    found = damaged(rested, tiny, places=40, opened=4)
    assert found["images"] > 5
    assert found["snapshots"] > 5
