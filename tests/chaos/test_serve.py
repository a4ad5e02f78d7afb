"""The service under the worst that may happen, at full length; the quick versions are in tests/serve.

Each test prints a line of figures; docs/reliability.md holds those of one run (`make chaos`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from taps.clip import Clip
from taps.serve import keeper
from taps.serve.doctor import examine
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve import faults, postgres
from tests.serve.conftest import beginning
from tests.serve.crowd import crowd
from tests.serve.damage import damaged
from tests.serve.killing import killed
from tests.serve.mutants import throw
from tests.serve.stopping import stopped
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
        assert [finding.sentence for finding in examine(after)] == []


def test_two_hundred_kills_below_the_service(
    zygote: Zygote, tmp_path: Path, tiny: Clip, capsys: pytest.CaptureFixture[str]
) -> None:
    found = killed(zygote, str(tmp_path), tmp_path, tiny, images=2000, kills=200, part=True)
    told(capsys, "kill -9 below the service", found)
    assert found["kills"] == 200
    assert found["same hash"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler to build the library with")
def test_every_call_fails_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "failing I/O", faults.run(tmp_path, step=1))


def test_a_thousand_damaged_places(
    tmp_path: Path, tiny: Clip, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(keeper, "EVERY", 10)
        patch.setattr(keeper, "WORTH", 0)
        with Service(Store(str(tmp_path / "store")), tiny) as service:
            service.create(beginning(), "test")
            live_through(Served(service), range(42))
    told(capsys, "damage", damaged(tmp_path / "store", tiny, places=1000, opened=50))


def test_a_hundred_thousand_tampered_images(
    zygote: Zygote, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = throw(zygote, tmp_path, 100_000)
    told(capsys, "tampered images", found)
    assert found["grown_mb"] < 100


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
