"""A folder and a database that do not belong together are refused; no start deletes what it does not know."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from taps.cli.store import recover
from taps.errors import StateError
from taps.model.clip import Clip
from taps.serve import blobs, database, guards, learner_log
from taps.serve import store as stores
from taps.serve import tables as t
from taps.serve.doctor import examine
from taps.serve.errors import StoreDownError
from taps.serve.service import Service
from taps.serve.store import Store
from tests.serve.conftest import beginning
from tests.serve.streams import Served

Open = Callable[..., Service]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder; the lock is made by whoever looks whether it is free."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def images(store: Path) -> dict[str, bytes]:
    """The images of a store, without the notes about its logs beside them."""
    found = contents(store / "images")
    return {name: data for name, data in found.items() if not name.startswith(".")}


def test_a_start_without_the_database_changes_nothing(filled: Path, open_service: Open) -> None:
    os.replace(filled / "store.sqlite", filled / "elsewhere.sqlite")
    before = contents(filled)
    with pytest.raises(StateError, match=r"database .* is empty"):
        open_service(str(filled), filled)
    with pytest.raises(StateError, match="No database"):
        Store.existing(str(filled))
    assert contents(filled) == before
    os.replace(filled / "elsewhere.sqlite", filled / "store.sqlite")
    assert not [finding for finding in examine(open_service(str(filled), filled).store) if finding.bad]


def test_a_log_of_writes_without_its_database_is_kept(filled: Path, open_service: Open) -> None:
    """SQLite deletes the log of writes beside a new database; what is in it may be acknowledged."""
    os.replace(filled / "store.sqlite", filled / "elsewhere.sqlite")
    (filled / "identity").unlink()
    (filled / "store.sqlite-wal").write_bytes(b"writes")
    with pytest.raises(StateError, match="is no store"):
        open_service(str(filled), filled)
    assert (filled / "store.sqlite-wal").read_bytes() == b"writes"


def test_the_right_files_with_a_wrong_database(
    postgres_server: Any, tmp_path: Path, open_service: Open
) -> None:
    files = tmp_path / "files"
    service = open_service(postgres_server.url(), files)
    service.create(beginning(), "test")
    Served(service).predict(0)
    service.stop()
    before = contents(files)
    with pytest.raises(StateError, match=r"database .* is empty"):
        open_service(postgres_server.url(), files)
    assert contents(files) == before


def test_started_anew_all_that_was_there_is_set_aside(filled: Path, tiny: Clip) -> None:
    before = contents(filled / "images")
    (filled / "store.sqlite").unlink()
    with Service(Store(str(filled), anew=True), tiny) as service:
        assert service.store.streams() == []
    (aside,) = filled.glob("before-*")
    assert contents(aside / "images") == before
    assert (aside / "identity").is_file()
    with Service(Store(str(filled), anew=True), tiny):  # a store that is whole is never set aside
        assert len(list(filled.glob("before-*"))) == 1


@pytest.mark.parametrize(("where", "moment"), [(stores.Store, "set_note"), (guards.os, "replace")])
def test_a_first_start_that_was_killed_is_gone_on_with(
    tmp_path: Path, open_service: Open, monkeypatch: pytest.MonkeyPatch, where: Any, moment: str
) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, moment, die)
        with pytest.raises(KeyboardInterrupt):
            open_service(str(tmp_path / "store"), tmp_path / "store")
    open_service(str(tmp_path / "store"), tmp_path / "store")


def test_a_lost_identity_is_named(filled: Path, open_service: Open) -> None:
    known = (filled / "identity").read_text()
    (filled / "identity").unlink()
    with pytest.raises(StateError, match=known):
        open_service(str(filled), filled)


def test_files_that_no_record_ever_spoke_of_are_left_alone(filled: Path, open_service: Open) -> None:
    """As when the database is put back from an older backup."""
    with Store.existing(str(filled)) as store:
        unknown = store.blobs.put(b"of another database")
        (filled / "snapshots" / "7").mkdir()
    service = open_service(str(filled), filled)
    assert service.store.blobs.read(unknown) == b"of another database"
    assert (filled / "snapshots" / "7").is_dir()
    (said,) = examine(service.store)
    assert not said.bad
    assert "no record" in said.sentence


def test_what_is_removed_waits_for_a_day_and_comes_back(
    filled: Path, open_service: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is deleted; then the database as it was before is put back."""
    shutil.copy(filled / "store.sqlite", filled.parent)
    shutil.copytree(filled / "heads", filled.parent / "heads")
    before = images(filled), contents(filled / "snapshots")
    service = open_service(str(filled), filled)
    digest = Served(service).digest()
    service.remove("pets", "test")
    assert not images(filled)
    assert any("bin" in finding.sentence and not finding.bad for finding in examine(service.store))
    service.stop()
    shutil.copy(filled.parent / "store.sqlite", filled)
    shutil.copytree(filled.parent / "heads", filled / "heads", dirs_exist_ok=True)
    with pytest.raises(StateError, match="what came after is lost"):  # that it was deleted was acknowledged
        open_service(str(filled), filled)
    recover(str(filled))
    service = open_service(str(filled), filled)
    assert (images(filled), contents(filled / "snapshots")) == before
    assert Served(service).digest() == digest
    service.remove("pets", "test")
    waiting = contents(filled / "bin")
    assert waiting
    now = time.time()
    for hours, left in ((24, waiting), (25, {})):
        monkeypatch.setattr(blobs.time, "time", lambda hours=hours: now + 3600 * hours)
        service.store.sweep()
        assert contents(filled / "bin") == left


def test_images_let_go_wait_in_the_bin(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in ((learner_log, "EVERY", 5), (learner_log, "WORTH", 0), (stores, "RECENT", 3)):
        monkeypatch.setattr(module, name, value)
    service.create(beginning(), "test")
    for number in range(20):
        Served(service).predict(number)
    there = set(service.store.blobs.names())
    waiting = {path.name for path in (service.store.files / "bin").rglob("*") if path.is_file()}
    rows = service.store.predictions(1)
    assert waiting == {row.image for row in rows if not row.kept} != set()
    assert there | waiting == {row.image for row in rows}


def test_little_disk_empties_the_bin(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    store = service.store
    store.blobs.release(name := store.blobs.put(b"x"))
    store.blobs.remove(name, store.needs)
    assert contents(store.files / "bin")
    monkeypatch.setattr(blobs, "LITTLE", 1 << 62)
    store.bin.empty()
    assert not contents(store.files / "bin")


@pytest.fixture
def copied(postgres_server: Any, tmp_path: Path, open_service: Open) -> tuple[str, Path, Path]:
    """A database and two copies of its folder; it went on with the second, which has one more image."""
    url, first, second = postgres_server.url(), tmp_path / "first", tmp_path / "second"
    service = open_service(url, first)
    service.create(beginning(), "test")
    Served(service).predict(0)
    service.stop()
    shutil.copytree(first, second)
    service = open_service(url, second)
    Served(service).predict(1)
    service.stop()
    return url, first, second


def test_an_old_copy_of_the_folder_is_refused(copied: tuple[str, Path, Path], open_service: Open) -> None:
    url, first, second = copied
    before = contents(first)
    with pytest.raises(StateError, match=f"went on with .*:{second}"):
        open_service(url, first)
    with Store.existing(url, first) as store:
        assert any("is an old copy" in finding.sentence and finding.bad for finding in examine(store))
    assert contents(first) == before
    assert len(open_service(url, second).store.predictions(1)) == 2


def test_recover_gives_up_nothing_that_another_copy_has(
    copied: tuple[str, Path, Path], open_service: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, first, second = copied
    before = contents(second)
    with pytest.raises(StateError, match="old copy"):
        recover(url, first)
    recover(url, first, yes=True)
    service = open_service(url, first)
    assert [row.kept for row in service.store.predictions(1)] == [True, False]
    assert contents(second) == before
    service.stop()
    with pytest.raises(StateError, match=f"went on with .*:{first}"):
        open_service(url, second)


def test_recover_refuses_the_folder_of_another_database(filled: Path, open_service: Open) -> None:
    other = filled.parent / "other"
    open_service(str(other), other).stop()
    before = contents(filled)
    with pytest.raises(StateError, match="another database"):
        recover(str(filled), other, yes=True)
    assert contents(filled) == before


def test_a_second_machine_is_refused_before_it_writes_anything(
    postgres_server: Any, tmp_path: Path, open_service: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "GONE", 0)
    url = postgres_server.url()
    service = open_service(url, tmp_path / "first")
    service.create(beginning(), "test")
    Served(service).predict(0)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    before = contents(tmp_path / "second"), tables_of(service.store)
    for attempt in (
        lambda: open_service(url, tmp_path / "second"),
        lambda: recover(url, tmp_path / "second"),
    ):
        with pytest.raises(StoreDownError, match="Another service uses"):
            attempt()
    assert (contents(tmp_path / "second"), tables_of(service.store)) == before
    assert Served(service).predict(1) in (True, False)


def tables_of(store: Store) -> list[Any]:
    with store.database.read_all() as connection:
        return [connection.execute(select(table)).all() for table in t.metadata.sorted_tables]
