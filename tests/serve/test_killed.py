"""A service killed at random moments; the long run is in tests/chaos."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from taps.errors import TapsError
from taps.model.clip import Clip
from taps.serve.client import Client
from taps.serve.doctor import examine
from taps.serve.store import Store
from tests.serve.conftest import ASKING, CLASSES, png
from tests.serve.killing import killed
from tests.serve.processes import processes_of
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
    with Client(url, retries=0) as client:
        client.create_stream("pets", CLASSES, "taps", settings=ASKING)
        for number in range(3):
            client.predict("pets", png(number))
        kill_at_once(below(zygote, pid))
        assert client.predict("pets", png(3))["id"] == 3
        assert client.stats("pets")["seen"] == 4
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not Path(f"/proc/{pid}").exists() and not below(zygote, pid))


@pytest.mark.parametrize("lost", [0, 1, 3], ids=["idle", "without the one that forks", "without any"])
def test_no_process_outlives_a_killed_service(zygote: Zygote, tmp_path: Path, lost: int) -> None:
    pid, url = zygote.start(str(tmp_path), tmp_path)
    with Client(url, retries=0) as client:
        client.create_stream("pets", CLASSES, "taps", settings=ASKING)
        client.predict("pets", png(0))
        kill_at_once(below(zygote, pid)[:lost])
        client.predict("pets", png(1))
    zygote.kill(pid)
    wait_until(lambda: not below(zygote, pid))


def test_nor_does_one_that_has_not_begun_yet(tmp_path: Path) -> None:
    """A new interpreter starts where every process below the service has died: it ends once it has begun."""
    later = tmp_path / "later"
    later.mkdir()
    zygote = Zygote({"PYTHONPATH": os.pathsep.join([str(later), os.environ.get("PYTHONPATH", "")])})
    try:
        pid, url = zygote.start(str(tmp_path / "store"), tmp_path / "store")
        (later / "torch.py").write_text(
            f"import os, time\nopen({str(later / 'begun')!r}, 'w')\n"
            f"while not os.path.exists({str(later / 'go')!r}): time.sleep(0.01)\nraise ImportError\n"
        )
        kill_at_once(below(zygote, pid))
        threading.Thread(target=begin_stream, args=(url,), daemon=True).start()
        wait_until((later / "begun").exists)
        zygote.kill(pid)
        (later / "go").touch()
        wait_until(lambda: not below(zygote, pid))
    finally:
        kill_at_once(below(zygote, 0))
        zygote.close()


def begin_stream(url: str) -> None:
    """Until the service is killed."""
    with Client(url, retries=0) as client, suppress(TapsError):
        client.create_stream("pets", CLASSES, "taps", settings=ASKING)


def below(zygote: Zygote, pid: int) -> list[int]:
    """The processes of a service, the eldest first; also those whose parent has died."""
    above = zygote.process.pid
    return [each for each in sorted(processes_of(above)) if each not in (above, pid)]


def kill_at_once(processes: list[int]) -> None:
    for sign in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none takes another's place
        for each in processes:
            with suppress(ProcessLookupError):
                os.kill(each, sign)


def wait_until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
