"""Nothing in the database changes or is lost unnoticed; two hundred places are in tests/chaos."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text, update

from taps.errors import StateError
from taps.model.clip import Clip
from taps.serve import tables as t
from taps.serve.database import FILE, LEFT
from taps.serve.doctor import recover
from taps.serve.service import Service
from taps.serve.store import Store
from taps.serve.tokens import Tokens
from tests.serve.conftest import beginning
from tests.serve.flips import WAL, fill, flipped, named
from tests.serve.streams import Served, live_through


@pytest.fixture
def killed(service: Service, tmp_path: Path) -> Path:
    """The files of a service that was killed."""
    return fill(service, tmp_path / "killed")


def test_flipped_bits_are_named(killed: Path, service: Service, tmp_path: Path) -> None:
    service.stop()
    for place in (service.store.files, killed):
        assert named(shutil.copytree(place, tmp_path / "unhurt")) == []
        shutil.rmtree(tmp_path / "unhurt")
    assert flipped(service.store.files, killed, tmp_path, flips=20)["named"] == 20


def test_a_bit_that_no_row_has_is_told_and_does_no_harm(
    killed: Path, service: Service, tiny: Clip, caplog: pytest.LogCaptureFixture
) -> None:
    service.stop()
    file = service.store.files / FILE
    with file.open("r+b") as handle:
        os.pwrite(handle.fileno(), b"\x01", 72)  # a byte of SQLite's header that is reserved, and zero
    assert "has changed since the service was stopped" in " ".join(named(file.parent))
    with Service(Store(str(file.parent)), tiny) as again:
        assert "has changed since" in caplog.text
        assert named(file.parent) == []  # whoever writes to it changes it
        Served(again).predict(20)
    assert (file.parent / LEFT).is_file()
    assert named(file.parent) == []


def test_a_token_made_while_the_service_rests_is_no_damage(service: Service) -> None:
    service.stop()
    with Store.existing(str(service.store.files)) as store:
        Tokens(store).create("camera", ("predict",))
    assert named(service.store.files) == []


def test_events_lost_from_the_log_of_writes_are_missed(killed: Path, tiny: Clip) -> None:
    data = bytearray((killed / WAL).read_bytes())
    data[len(data) // 2] ^= 1
    (killed / WAL).write_bytes(data)
    assert "was acknowledged: what came after is lost" in " ".join(named(killed))
    with pytest.raises(StateError, match="what came after is lost"):
        Service(Store(str(killed)), tiny).__enter__()
    with Store.existing(str(killed)) as store:
        assert "counts from now on" in " ".join(recover(store))
    with Service(Store(str(killed)), tiny) as service:
        assert Served(service).predict(20) in (True, False)
    assert named(killed) == []


CHANGES = {
    "streams": {"seed": 2}, "events": {"who": "another"}, "predictions": {"label": "dof"},
    "audit": {"who": "x"}, "tokens": {"roles": "admin"}, "meta": {"value": "else"},
}  # fmt: skip


@pytest.mark.parametrize("table", CHANGES)
def test_a_row_that_was_changed_is_named(place: tuple[str, Path], open_service: Any, table: str) -> None:
    service = open_service(*place)
    service.create(beginning(), "test")
    Tokens(service.store).create("camera", ("predict",))
    live_through(Served(service), range(5))
    service.stop()
    with Store.existing(*place) as store:
        assert list(store.damage()) == []
        changed = t.metadata.tables[table]
        only = [changed.c.name == "probe"] if table == "meta" else []
        with store.database.write() as connection:
            if table == "meta":
                store._put_note(connection, "probe", "0")
            connection.execute(update(changed).where(*only).values(CHANGES[table]))
        assert f"A row of the table '{table}'" in " ".join(store.damage())
    with pytest.raises(StateError, match="The database is damaged"):
        open_service(*place)


def test_a_stream_that_was_never_acknowledged_whole_is_no_loss(killed: Path) -> None:
    """A process killed between the commit and the note of it: the note is behind, and that is fine."""
    file = killed / "heads" / "1"
    newest = max(range(2), key=lambda at: int(file.read_bytes()[128 * at :].split()[0]))
    with file.open("r+b") as handle:
        os.pwrite(handle.fileno(), b"half", 128 * newest)
    assert named(killed) == []


def test_a_database_of_another_form_is_refused(killed: Path, tiny: Clip) -> None:
    with Store.existing(str(killed)) as store, store.database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert "form '9999'" in " ".join(named(killed))
    with pytest.raises(StateError, match="form '9999'"):
        Service(Store(str(killed)), tiny).__enter__()
