"""A service killed at random moments; the long run is in tests/chaos."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from taps.clip import Clip
from taps.serve.bench import processes_of
from taps.serve.client import Client
from taps.serve.doctor import examine
from taps.serve.store import Store
from tests.serve.conftest import ASKING, CLASSES, png
from tests.serve.killing import killed
from tests.serve.zygote import Zygote


def test_nothing_acknowledged_is_lost(zygote: Zygote, place: tuple[str, Path], tiny: Clip) -> None:
    found = killed(zygote, *place, tiny, images=30, kills=4)
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


def test_every_process_below_the_service_dies_at_once(zygote: Zygote, tmp_path: Path) -> None:
    """Those that start others, too: a new one is started, and the streams come back from snapshot and log."""
    pid, url = zygote.start(str(tmp_path), tmp_path)
    above = zygote.process.pid  # takes in those whose parent died

    def below() -> set[int]:
        return {*processes_of(above)} - {above, pid}

    with Client(url, retries=0) as client:
        client.create_stream("pets", CLASSES, settings=ASKING)
        for number in range(3):
            client.predict("pets", png(number))
        for sign in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none takes another's place
            for each in below():
                os.kill(each, sign)
        assert client.predict("pets", png(3))["id"] == 3
        assert client.stats("pets")["seen"] == 4
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() or below():
        assert time.monotonic() < end
        time.sleep(0.01)
