"""Damage is named, repaired where it can be, and a backup of a running service is a store of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from taps.errors import StateError
from taps.model.clip import Clip
from taps.serve import learner_log
from taps.serve import tables as t
from taps.serve.backup import backup
from taps.serve.doctor import examine, recover
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import beginning, png
from tests.serve.streams import Served, live_through

Executor = tuple[str, Path]
Reopen = Callable[[], Store]


@pytest.fixture
def filled(place: Executor, open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service with a stream, two snapshots, and events after them."""
    monkeypatch.setattr(learner_log, "EVERY", 10)
    monkeypatch.setattr(learner_log, "WORTH", 0)
    service = open_service(*place)
    service.create(beginning(), "test")
    live_through(Served(service), range(30))
    monkeypatch.setattr(learner_log, "EVERY", 1000)
    for number in range(30, 33):
        Served(service).predict(number)
    monkeypatch.setattr(learner_log.LearnerLog, "unload", lambda self: None)
    return service


@pytest.fixture
def reopen(place: Executor) -> Iterator[Reopen]:
    """Opens the store again, as the commands do."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Store.existing(*place))


def bad(store: Store) -> list[str]:
    return [finding.sentence for finding in examine(store) if finding.bad]


def test_a_store_without_flaws(filled: Service) -> None:
    assert list(examine(filled.store)) == []


def test_a_damaged_snapshot_is_named_and_set_aside(
    filled: Service, place: Executor, tiny: Clip, reopen: Reopen
) -> None:
    before = Served(filled).digest()
    filled.stop()
    snapshots = filled.store.snapshots(1)
    newest = snapshots.folder / f"{snapshots.seqs()[-1]:012d}"
    file = next(newest.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1])
    store = reopen()
    (sentence,) = bad(store)
    assert str(file) in sentence
    assert "set aside" in " ".join(recover(store))
    assert bad(store) == []
    with Service(store, tiny) as service:
        assert Served(service).digest() == before


def test_a_lost_image_is_named_and_given_up(
    filled: Service, place: Executor, tiny: Clip, reopen: Reopen
) -> None:
    filled.stop()
    row = filled.store.predictions(1)[31]
    filled.store.blobs.path(row.image).write_bytes(b"not what it was")
    store = reopen()
    assert any(row.image in sentence and "taps recover" in sentence for sentence in bad(store))
    assert "prediction 31 is lost" in " ".join(recover(store))
    assert bad(store) == []
    with Service(store, tiny) as service:
        assert (
            service.send("pets", lambda session: session.predict(png(33), "33", "test")).result().row.id == 33
        )
        assert service.troubles() == []


def test_a_gap_in_the_log_is_named(filled: Service, place: Executor, reopen: Reopen) -> None:
    filled.stop()
    store = reopen()
    with store.database.write() as connection:
        connection.execute(delete(t.events).where(t.events.c.seq == 7))
    assert any("events of the log are missing" in sentence for sentence in bad(store))


def test_orphans_are_good_to_know_and_go_when_asked_for(
    filled: Service, place: Executor, tiny: Clip, reopen: Reopen
) -> None:
    filled.store.blobs.put(b"nobody's")
    (filled.store.files / "images" / "ab").mkdir(exist_ok=True)
    (filled.store.files / "images" / "ab" / f"{'ab' * 32}.12-34.part").write_bytes(b"half")
    deleted = filled.store.snapshots(99).folder
    deleted.mkdir()
    filled.stop()
    store = reopen()
    assert [finding.bad for finding in examine(store)] == [False, False]
    with Service(store, tiny):
        assert [finding.bad for finding in examine(store)] == [False]
        assert deleted.exists()
    store = reopen()
    assert "2 files that no record needs were moved" in " ".join(recover(store))
    assert not deleted.exists()
    assert ["in the bin" in finding.sentence for finding in examine(store)] == [True]


def test_a_backup_of_a_running_service_is_a_store(filled: Service, tmp_path: Path, tiny: Clip) -> None:
    backup(filled.store, tmp_path / "copy")
    before = Served(filled).digest()
    Served(filled).predict(40)
    with Service(Store(str(tmp_path / "copy")), tiny) as copy:
        assert Served(copy).digest() == before
    with pytest.raises(StateError, match="not empty"):
        backup(filled.store, tmp_path / "copy")


def test_a_snapshot_newer_than_the_log_is_not_used(
    place: Executor, open_service: Any, tiny: Clip, tmp_path: Path, reopen: Reopen
) -> None:
    """As when a database is put back from a backup and the folder is not."""
    service = open_service(*place)
    service.create(beginning(), "test")
    for number in range(4):
        Served(service).predict(number)
    before = Served(service).digest()
    Served(service).predict(4)
    service.stop()
    store = reopen()
    with store.database.write() as connection:
        connection.execute(delete(t.events).where(t.events.c.seq == 5))
        connection.execute(delete(t.predictions).where(t.predictions.c.seq == 5))
    assert any("newer than the log" in sentence for sentence in bad(store))
    with pytest.raises(StateError, match="ends at 4, but 5 was acknowledged: what came after is lost"):
        open_service(*place)
    assert "What is there counts from now on" in " ".join(recover(store))
    assert Served(open_service(*place)).digest() == before


def test_no_store_is_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No store"):
        Store.existing(str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_a_store_on_a_read_only_mount(tmp_path: Path) -> None:
    if subprocess.run("unshare --mount true", shell=True, capture_output=True).returncode:
        pytest.skip("mounting needs rights that are not there")
    command = ["unshare", "--mount", sys.executable, "-m", "tests.serve.readonly", str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    refused, bad, copied = done.stdout.splitlines()
    assert "cannot be written (Read-only file system)" in refused
    assert (bad, copied) == ("[]", "1")
