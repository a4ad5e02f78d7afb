"""The service under the worst that may happen, at full length; the quick versions are in tests/serve.

Each test prints a line of figures; docs/results/service.md holds those of one run (`make chaos`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from taps.model.clip import Clip
from taps.serve import learner_log
from taps.serve.doctor import examine
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve import faults, postgres
from tests.serve.conftest import beginning
from tests.serve.crowd import crowd
from tests.serve.damage import damaged
from tests.serve.deleting import OF_SQLITE, SINGLE, VITAL, seconds_until_told
from tests.serve.flips import fill, flipped
from tests.serve.killing import killed
from tests.serve.mutants import throw
from tests.serve.stopping import stopped
from tests.serve.strangers import besiege
from tests.serve.streams import Served, live_through
from tests.serve.zygote import Zygote

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with postgres.running() as running:
        yield running


def told(capsys: pytest.CaptureFixture[str], name: str, figures: object) -> None:
    with capsys.disabled():
        print(f"\n{name}: {json.dumps(figures)}", flush=True)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_hundred_kills(
    zygote: Zygote,
    kind: str,
    tmp_path: Path,
    tiny: Clip,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = str(tmp_path) if kind == "sqlite" else request.getfixturevalue("server").url()
    found = killed(zygote, place, tmp_path, tiny, images=2000, kills=200)
    told(capsys, f"kill -9, {kind}", found)
    assert found["kills"] == 200
    assert found["same hash"]
    with Store.existing(place, tmp_path) as after:
        assert [finding.sentence for finding in examine(after) if finding.bad] == []


def test_two_hundred_kills_below_the_service(
    zygote: Zygote, tmp_path: Path, tiny: Clip, capsys: pytest.CaptureFixture[str]
) -> None:
    found = killed(zygote, str(tmp_path), tmp_path, tiny, images=2000, kills=200, part=True)
    told(capsys, "kill -9 below the service", found)
    assert found["kills"] == 200
    assert found["same hash"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (Debian: apt-get install gcc)")
def test_every_call_fails_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "failing I/O", faults.run(tmp_path, step=1))


def test_a_thousand_damaged_places(
    tmp_path: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(learner_log, "EVERY", 10)
        patch.setattr(learner_log, "WORTH", 0)
        with Service(Store(str(tmp_path / "store")), tiny) as service:
            service.create(beginning(), "test")
            live_through(Served(service), range(42))
    told(capsys, "damage", damaged(tmp_path / "store", tiny, places=1000, opened=50))


def test_two_hundred_flipped_bits_of_the_database(
    tmp_path: Path, tiny: Clip, capsys: pytest.CaptureFixture[str]
) -> None:
    with Service(Store(str(tmp_path / "store")), tiny) as service:
        killed = fill(service, tmp_path / "killed")
    found = flipped(tmp_path / "store", killed, tmp_path, flips=200)
    told(capsys, "flipped bits of the database", found)
    assert found["named"] == 200


def test_a_hundred_thousand_tampered_images(
    zygote: Zygote, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = throw(zygote, tmp_path, 100_000)
    told(capsys, "tampered images", found)
    assert found["grown_mb"] < 100


def test_strangers_fill_no_memory(zygote: Zygote, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = besiege(zygote, tmp_path, connections=480)
    told(capsys, "strangers", found)
    assert found["grown_mb"] <= 50
    assert found["answered"] == found["asked"]


def test_fifty_clients_for_two_minutes(
    zygote: Zygote,
    tmp_path: Path,
    tiny: Clip,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told(capsys, "crowd", crowd(zygote, tmp_path, tiny, clients=50, streams=4, seconds=120))


def test_told_to_stop_under_load(
    zygote: Zygote, tmp_path: Path, tiny: Clip, capsys: pytest.CaptureFixture[str]
) -> None:
    told(
        capsys, "SIGTERM", [stopped(zygote, tmp_path / str(number), tiny, clients=20) for number in range(10)]
    )


def test_each_part_of_a_running_store_is_deleted(
    zygote: Zygote, tmp_path: Path, server: postgres.Server, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for what, find in {**VITAL, **OF_SQLITE, **SINGLE}.items():
        files = tmp_path / what.replace(" ", "-")
        found[what] = seconds_until_told(zygote, str(files), files, find, vital=what not in SINGLE)
    told(capsys, "deleted, sqlite", {what: round(seconds, 2) for what, seconds in found.items()})
    found = {}
    for what, find in {**VITAL, **SINGLE}.items():
        files = tmp_path / "files" / what.replace(" ", "-")
        found[what] = seconds_until_told(zygote, server.url(), files, find, vital=what not in SINGLE)
    told(capsys, "deleted, postgresql", {what: round(seconds, 2) for what, seconds in found.items()})
