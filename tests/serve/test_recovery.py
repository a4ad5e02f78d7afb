"""What was acknowledged is there after a crash, and the learner is the same to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taps.errors import StateError
from taps.model.clip import Clip
from taps.serve import learner_log, store
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import beginning
from tests.serve.streams import Bare, Served, digest, live_through

Open = Callable[..., Service]
Executor = tuple[str, Path]


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Callable[[Service], None]:
    """Ends a service without the snapshots a peaceful end would leave."""

    def end(service: Service) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(learner_log.LearnerLog, "unload", lambda self: None)
            service.stop()

    return end


@pytest.mark.parametrize("every", [5, 1000])
def test_the_same_bits_after_crashes(
    place: Executor, open_service: Open, crash: Any, tiny: Clip, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_log, "EVERY", every)
    monkeypatch.setattr(learner_log, "WORTH", 0)
    bare = Bare(tiny, beginning())
    live_through(bare, range(32))

    service, waiting = open_service(*place), []
    service.create(beginning(), "test")
    for begin in range(0, 32, 8):
        waiting = live_through(Served(service), range(begin, begin + 8), waiting)
        crash(service)
        service = open_service(*place)
    assert Served(service).digest() == digest(bare.learner)
    log = service.store.events(service.stream("pets").id)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    snapshots = service.store.snapshots(service.stream("pets").id).seqs()
    assert len(snapshots) == (2 if every == 5 else 0)


def test_a_peaceful_end_leaves_nothing_to_replay(place: Executor, open_service: Open) -> None:
    service = open_service(*place)
    service.create(beginning(), "test")
    live_through(Served(service), range(10))
    before = Served(service).digest()
    service.stop()
    service = open_service(*place)
    assert Served(service).digest() == before
    assert service.worker("pets").session.learner_log.replayed == 0


def test_images_are_removed_by_the_rule(
    place: Executor, open_service: Open, crash: Any, tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_log, "EVERY", 5)
    monkeypatch.setattr(learner_log, "WORTH", 0)
    monkeypatch.setattr(store, "RECENT", 3)
    bare = Bare(tiny, beginning())
    live_through(bare, range(30))
    service = open_service(*place)
    service.create(beginning(), "test")
    live_through(Served(service), range(30))
    kept = service.store.snapshots(1).seqs()
    rows = service.store.predictions(service.stream("pets").id)
    older = kept[-2]
    must = {r.image for r in rows if r.state in ("open", "answered") or r.seq > older or r.id > 27}
    there = set(service.store.blobs.names())
    assert must <= there
    assert len(there) < 30
    assert {row.image for row in rows if row.kept} == there
    crash(service)
    assert Served(open_service(*place)).digest() == digest(bare.learner)


def test_a_damaged_snapshot_is_left_aside(
    place: Executor, open_service: Open, tiny: Clip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_log, "EVERY", 10)
    monkeypatch.setattr(learner_log, "WORTH", 0)
    service = open_service(*place)
    service.create(beginning(), "test")
    live_through(Served(service), range(27))
    before = Served(service).digest()
    snapshots = service.store.snapshots(1)
    service.stop()
    newest = snapshots.folder / f"{snapshots.seqs()[-1]:012d}"
    file = next(newest.glob("*.safetensors"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert "damaged" in (snapshots.check(snapshots.seqs()[-1]) or "")
    service = open_service(*place)
    assert Served(service).digest() == before
    assert service.worker("pets").session.learner_log.replayed > 0


def test_a_damaged_image_stops_the_replay_there(place: Executor, open_service: Open, crash: Any) -> None:
    service = open_service(*place)
    service.create(beginning(), "test")
    served = Served(service)
    for number in range(3):
        served.predict(number)
    before = served.digest()
    for number in range(3, 6):
        served.predict(number)
    row = service.store.predictions(service.stream("pets").id)[3]
    crash(service)
    path = service.store.blobs.path(row.image)
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    service = open_service(*place)
    assert Served(service).digest() == before
    assert any(row.image in trouble for trouble in service.troubles())
    outcome = service.send("pets", lambda session: session.predict(whole, "x", "test")).result()
    assert not outcome.recorded
    path.write_bytes(whole)  # put back from a backup: it goes on by itself
    service.worker("pets").session.learner_log._tried = 0.0
    assert service.send("pets", lambda session: session.predict(whole, "x", "test")).result().row.id == 6
    assert service.troubles() == []


def test_two_services_do_not_share_a_store(place: Executor, open_service: Open) -> None:
    open_service(*place)
    with pytest.raises(StateError, match="Another process"):
        open_service(*place)


def test_a_folder_of_another_database_is_refused(tmp_path: Path, open_service: Open) -> None:
    open_service(str(tmp_path / "a"), tmp_path / "a").stop()
    open_service(str(tmp_path / "b"), tmp_path / "b").stop()
    with pytest.raises(StateError, match="another database"):
        Store(str(tmp_path / "a"), tmp_path / "b").open()


def test_another_model_is_refused(tmp_path: Path, open_service: Open) -> None:
    service = open_service(str(tmp_path / "a"), tmp_path / "a")
    service.store.set_note("model", "other")
    service.stop()
    with pytest.raises(StateError, match="another model"):
        open_service(str(tmp_path / "a"), tmp_path / "a")


def test_the_manifest_names_every_file(service: Service) -> None:
    service.create(beginning(), "test")
    live_through(Served(service), range(4))
    service.send("pets", lambda session: session.learner_log.snapshot()).result()
    (folder,) = (service.store.files / "snapshots" / "1").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {"manifest.json"}
