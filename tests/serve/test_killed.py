"""A service killed at random moments; the long run is in tests/chaos."""

from __future__ import annotations

from pathlib import Path

from taps.clip import Clip
from taps.serve.doctor import examine
from taps.serve.store import Store
from tests.serve.killing import killed
from tests.serve.zygote import Zygote


def test_nothing_acknowledged_is_lost(zygote: Zygote, place: tuple[str, Path], tiny: Clip) -> None:
    found = killed(zygote, *place, tiny, images=40, kills=5)
    assert found["kills"] >= 3
    assert found["same hash"]
    with Store.existing(*place) as store:
        assert [finding.sentence for finding in examine(store)] == []


def test_a_process_below_the_service_is_replaced(zygote: Zygote, tmp_path: Path, tiny: Clip) -> None:
    """One that computes, or that starts those: streams come back from snapshot and log, no request fails."""
    found = killed(zygote, str(tmp_path), tmp_path, tiny, images=40, kills=5, part=True)
    assert found["kills"] >= 3
    assert found["sent again"] == 0
    assert found["same hash"]
