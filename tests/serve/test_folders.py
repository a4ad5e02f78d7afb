"""A store is known by its marker; in it only its own names are touched; one put back in part is refused."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from taps.cli import store as commands
from taps.cli.label import go
from taps.errors import StateError, TapsError
from taps.model.clip import Clip
from taps.serve import backup as backups
from taps.serve import learner_log
from taps.serve.backup import backup
from taps.serve.doctor import NO_START, examine, recover
from taps.serve.errors import StoreDownError
from taps.serve.replay import learner_of
from taps.serve.service import Service
from taps.serve.snapshots import Snapshots
from taps.serve.store import Store
from taps.serve.tokens import Tokens
from tests.serve.conftest import once
from tests.serve.streams import Served, digest
from tests.serve.test_guards import contents

Open = Callable[..., Service]
MINE = {  # files of a user, at places where a store has files or looks for them
    "bin/7zip/a.txt": b"a", "bin/2024/images/b.txt": b"b", "bin/123456/notes/c.txt": b"c",
    "export-2024/report.txt": b"d", "export-holidays/export.zip": b"e", "heads/mine.txt": b"f",
    "images/ab/notes.part": b"g", "images/ab/notes.txt": b"h", "snapshots/mine/i.txt": b"i",
    "snapshots/1/000.part/j.txt": b"j", "snapshots/1/2024/k.txt": b"k", "snapshots/\u00b2/l.txt": b"l",
}  # fmt: skip


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("words", [
    ["token", "create", "--role", "admin"], ["token", "list"], ["token", "revoke", "x"], ["doctor"],
    ["recover"], ["backup", "elsewhere"],
], ids=" ".join)  # fmt: skip
def test_a_folder_that_is_no_store_is_refused(words: list[str], tmp_path: Path) -> None:
    put(tmp_path, MINE)
    group = getattr(commands, words[0]) if words[0] == "token" else commands.app
    place = words.index(words[-1]) if words[0] == "backup" else 2 if words[0] == "token" else 1
    line = [*words[:place], str(tmp_path), *words[place:]][words[0] == "token" :]
    with pytest.raises(StateError, match=r"[Nn]o store"):
        CliRunner().invoke(group, line, catch_exceptions=False)
    assert contents(tmp_path) == MINE


@pytest.mark.parametrize("anew", [False, True])
def test_no_service_starts_in_such_a_folder(tmp_path: Path, tiny: Clip, anew: bool) -> None:
    put(tmp_path, MINE)
    with pytest.raises(StateError, match="is no store"):
        Service(Store(str(tmp_path), anew=anew), tiny).__enter__()
    with pytest.raises(StateError, match="is no store"):
        go(tmp_path, tiny, lambda service: pytest.fail("began"), None)  # type: ignore[arg-type]
    assert contents(tmp_path) == MINE
    assert {path.name for path in tmp_path.iterdir()} == {name.split("/")[0] for name in MINE}


@pytest.mark.parametrize("name", ["store.sqlite", "identity", "a.txt"])
def test_a_single_file_makes_a_folder_somebodys(tmp_path: Path, name: str) -> None:
    put(tmp_path, {name: b"x" * 100})
    with pytest.raises(StateError, match="is no store"):
        Store(str(tmp_path))
    assert contents(tmp_path) == {name: b"x" * 100}


@pytest.mark.parametrize("name", ["lost+found/", ".DS_Store", ".lock", "identity.new.1-2.part"])
def test_what_file_systems_and_killed_starts_leave_does_not(
    tmp_path: Path, open_service: Open, name: str
) -> None:
    (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    open_service(str(tmp_path), tmp_path)


def test_in_a_store_only_names_of_its_own_are_touched(
    filled: Path, open_service: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(filled, MINE)
    monkeypatch.setattr("taps.serve.blobs.LITTLE", 1 << 62)  # the bin is emptied at once
    service = open_service(str(filled), filled)
    Served(service).predict(10)
    service.send("pets", lambda session: session.learner_log.snapshot()).result()
    service.stop()
    with Store.existing(str(filled)) as store:
        assert [finding.sentence for finding in examine(store) if finding.bad] == []
        list(recover(store))
    service = open_service(str(filled), filled)
    service.remove("pets", "test")
    service.stop()
    there = contents(filled)
    gone = {name for name, data in MINE.items() if there.get(name) != data}
    assert {name for name in gone if not name.startswith("snapshots/1/")} == set()  # that stream was deleted


# Stores that were put back in part

BACK = {
    "database and heads": ("store.sqlite", "heads"),
    "and starts": ("store.sqlite", "heads", "starts"),
    "all but snapshots": ("store.sqlite", "heads", "starts", "images"),
    "all but images": ("store.sqlite", "heads", "starts", "snapshots"),
}


def put_back(old: Path, place: Path, names: tuple[str, ...]) -> None:
    for name in names:
        target = place / name
        if target.is_dir():
            shutil.rmtree(target)
            shutil.copytree(old / name, target)
        else:
            shutil.copy(old / name, target)
    (place / "store.sqlite.sha256").unlink(missing_ok=True)


@pytest.mark.parametrize("what", BACK)
def test_a_store_put_back_in_part_is_refused(
    filled: Path, open_service: Open, tmp_path: Path, what: str
) -> None:
    shutil.copytree(filled, tmp_path / "old")
    service = open_service(str(filled), filled)
    for number in range(10, 15):
        Served(service).predict(number)
    service.stop()
    put_back(tmp_path / "old", filled, BACK[what])
    with pytest.raises(StateError, match="is lost"):
        open_service(str(filled), filled)
    with Store.existing(str(filled)) as store:
        said = [finding.sentence for finding in examine(store) if finding.bad]
        assert any(sentence.startswith(NO_START) and "is lost" in sentence for sentence in said)
        assert "counts from now on" in " ".join(recover(store))
        assert [finding.sentence for finding in examine(store) if finding.bad] == []
    service = open_service(str(filled), filled)
    assert len(service.store.predictions(1)) == 10
    Served(service).predict(15)


def test_a_store_of_an_earlier_version_put_back_in_part_is_refused(
    filled: Path, open_service: Open, tmp_path: Path
) -> None:
    """It has no notes among its images; a snapshot that is newer than the log tells."""
    shutil.copytree(filled, tmp_path / "old")
    service = open_service(str(filled), filled)
    Served(service).predict(10)
    service.stop()
    shutil.rmtree(filled / "images" / ".heads")
    put_back(tmp_path / "old", filled, BACK["and starts"])
    with pytest.raises(StateError, match="newer than the log"):
        open_service(str(filled), filled)


def test_a_whole_backup_starts(filled: Path, open_service: Open, tmp_path: Path) -> None:
    with Store.existing(str(filled)) as store:
        backup(store, tmp_path / "copy")
    shutil.copytree(filled, tmp_path / "copy2")
    for place in (tmp_path / "copy", tmp_path / "copy2"):
        assert len(open_service(str(place), place).store.predictions(1)) == 10


# What taps doctor says of a start


def sql(line: str) -> Callable[[Path], Any]:
    def act(place: Path) -> None:
        with Store.existing(str(place)) as store, store.database.write() as connection:
            connection.execute(text(line))

    return act


def replaced_by_a_file(name: str) -> Callable[[Path], Any]:
    def act(place: Path) -> None:
        shutil.rmtree(place / name)
        (place / name).write_bytes(b"x")

    return act


SPOILED: dict[str, Callable[[Path], Any]] = {
    "nothing": lambda place: None,
    "7zip in the bin": lambda place: put(place, {"bin/7zip/a": b"a"}),
    "the bin is a file": lambda place: put(place, {"bin": b"a"}),
    "starts in no encoding": lambda place: (place / "starts").write_bytes(b"\xff\xfe"),
    "checksum in no encoding": lambda place: (place / "store.sqlite.sha256").write_bytes(b"\xff\xfe"),
    "no heads": lambda place: shutil.rmtree(place / "heads"),
    "heads is a file": replaced_by_a_file("heads"),
    "images is a file": replaced_by_a_file("images"),
    "snapshots is a file": replaced_by_a_file("snapshots"),
    "no starts": lambda place: (place / "starts").unlink(),
    "another identity": lambda place: (place / "identity").write_text("0" * 32),
    "cut database": lambda place: os.truncate(place / "store.sqlite", 5000),
    "no database at all": lambda place: (place / "store.sqlite").write_bytes(b"no database at all" * 100),
    "unknown version": sql("UPDATE alembic_version SET version_num = '9999'"),
    "no version": sql("DROP TABLE alembic_version"),
    "no events": sql("DROP TABLE events"),
    "a changed row": sql("UPDATE tokens SET name = 'x'"),
    "a stream that is no JSON": sql("UPDATE streams SET classes = '{'"),
    "a row that is NULL": sql("UPDATE tokens SET created = 'abc'"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_doctor_says_whether_the_service_starts(filled: Path, tiny: Clip, tmp_path: Path, what: str) -> None:
    """The oracle is a start, of a copy."""
    with Store.existing(str(filled)) as store:
        Tokens(store).create("camera", ("predict",))
    SPOILED[what](filled)
    place = shutil.copytree(filled, tmp_path / "tried")
    with Store.existing(str(filled)) as store:
        said = [finding.sentence for finding in examine(store) if finding.sentence.startswith(NO_START)]
    try:
        with Service(Store(str(place)), tiny):
            starts = True
    except TapsError:
        starts = False
    assert starts is not bool(said), said


# Copies


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full after some images."""
    real, left = backups.write_durably, iter(range(5))

    def write(path: Path, data: bytes) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path, data)

    monkeypatch.setattr(backups, "write_durably", write)


@pytest.mark.parametrize("empty", [False, True])
def test_a_full_disk_leaves_no_half_copy(filled: Path, tmp_path: Path, full: None, empty: bool) -> None:
    place = tmp_path / "copy"
    if empty:
        place.mkdir()
    with Store.existing(str(filled)) as store, pytest.raises(StateError, match="room") as said:
        backup(store, place)
    assert str(place) in str(said.value)
    assert "doctor" not in str(said.value)
    assert not contents(place)
    assert place.is_dir() is empty


def test_nor_does_a_full_disk_that_sqlite_meets(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StoreDownError("The store cannot be used now: database or disk is full.")

    monkeypatch.setattr(backups, "_copy_tables", fail)
    with Store.existing(str(filled)) as store, pytest.raises(StateError, match="room"):
        backup(store, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_newer_snapshot_is_not_taken(
    filled: Path, open_service: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a service that has saved one, `taps doctor` finds nothing wrong."""
    monkeypatch.setattr(learner_log, "EVERY", 1)
    monkeypatch.setattr(learner_log, "WORTH", 0)
    service = open_service(str(filled), filled)
    for number in range(10, 14):
        Served(service).predict(number)
        with Store.existing(str(filled)) as store:
            assert [finding.sentence for finding in examine(store) if finding.bad] == []


def test_a_learner_is_read_while_its_service_replaces_it(
    filled: Path, open_service: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_log, "EVERY", 1)
    monkeypatch.setattr(learner_log, "WORTH", 0)
    service = open_service(str(filled), filled)

    def go_on() -> None:
        for number in range(10, 14):  # two snapshots are kept
            Served(service).predict(number)

    with monkeypatch.context() as patch:
        patch.setattr(Snapshots, "check", once(Snapshots.check, go_on))
        learner = learner_of(filled)
    assert digest(learner) == Served(service).digest()
