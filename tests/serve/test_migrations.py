"""A store of an earlier version is brought to this one's form, and loses nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, text

from taps.aliases import EVENTS
from taps.errors import StateError
from taps.serve.backup import backup
from taps.serve.errors import StoreDownError
from taps.serve.guards import IDENTITY
from taps.serve.store import Store
from taps.serve.tables import metadata
from tests.serve.conftest import beginning, png
from tests.serve.streams import Served, live_through

SINCE_0002 = (
    "question VARCHAR(16) DEFAULT 'which' NOT NULL, "
    """"no" JSON DEFAULT '[]' NOT NULL, "none" BOOLEAN DEFAULT false NOT NULL, """
)
TABLES = (
    "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",
    "INSERT INTO alembic_version VALUES ('{version}')",
    "CREATE TABLE meta (name VARCHAR(40) NOT NULL PRIMARY KEY, value TEXT)",
    "CREATE TABLE streams (id {serial}, name VARCHAR(64) NOT NULL UNIQUE, method VARCHAR(64) NOT NULL, "
    "classes JSON NOT NULL, settings JSON NOT NULL, seed INTEGER NOT NULL, deadline DOUBLE PRECISION, "
    "hold DOUBLE PRECISION NOT NULL, created DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE events (stream INTEGER NOT NULL REFERENCES streams (id) ON DELETE CASCADE, "
    "seq INTEGER NOT NULL, kind VARCHAR(16) NOT NULL, prediction INTEGER, value JSON, key VARCHAR(200), "
    "who VARCHAR(64) NOT NULL, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (stream, seq), "
    "CONSTRAINT one_event_a_key UNIQUE (stream, key))",
    "CREATE TABLE predictions (stream INTEGER NOT NULL REFERENCES streams (id) ON DELETE CASCADE, "
    "id INTEGER NOT NULL, seq INTEGER NOT NULL, at DOUBLE PRECISION NOT NULL, image VARCHAR(64) NOT NULL, "
    'kept BOOLEAN NOT NULL, name TEXT NOT NULL, "index" INTEGER NOT NULL, label TEXT NOT NULL, '
    "top JSON NOT NULL, entropy DOUBLE PRECISION NOT NULL, threshold DOUBLE PRECISION, "
    "seconds DOUBLE PRECISION NOT NULL, state VARCHAR(16) NOT NULL, deadline DOUBLE PRECISION, answer TEXT, "
    "ended_by VARCHAR(64), ended_at DOUBLE PRECISION, {since_0002}PRIMARY KEY (stream, id))",
    "CREATE INDEX predictions_by_state ON predictions (stream, state)",
    "CREATE INDEX predictions_by_image ON predictions (image)",
    "CREATE TABLE tokens (id VARCHAR(16) NOT NULL PRIMARY KEY, name TEXT NOT NULL, "
    "hash VARCHAR(64) NOT NULL UNIQUE, roles VARCHAR(64) NOT NULL, stream VARCHAR(64), parent VARCHAR(16), "
    "created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION, revoked DOUBLE PRECISION)",
    "CREATE TABLE audit (id {serial}, at DOUBLE PRECISION NOT NULL, who VARCHAR(64) NOT NULL, "
    "action VARCHAR(32) NOT NULL, subject TEXT NOT NULL)",
)
SERIAL = {True: "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", False: "SERIAL PRIMARY KEY"}
OLD = (
    "INSERT INTO streams (id, name, method, classes, settings, seed, hold, created) "
    """VALUES (7, 'pets', 'taps', '["cat", "dog"]', '{"views": 1}', 0, 0, 0)""",
    "INSERT INTO events (stream, seq, kind, prediction, value, who, at) "
    """VALUES (7, 1, 'predict', 0, '"lost"', 'x', 0)""",
    'INSERT INTO predictions (stream, id, seq, at, image, kept, name, "index", label, top, entropy, seconds, '
    "state) VALUES (7, 0, 1, 0, 'ab', false, 'a', 0, 'cat', '[]', 0.5, 0, 'silent')",
    "INSERT INTO meta (name, value) VALUES ('identity', 'this one')",
)


@pytest.mark.parametrize("version", ["0001", "0002"])
def test_a_store_without_scores_goes_on(
    place: tuple[str, Path], tmp_path: Path, open_service: Any, version: str
) -> None:
    store = Store(*place)
    store.make_folders()
    form = {
        "{version}": version,
        "{since_0002}": SINCE_0002 if version == "0002" else "",
        "{serial}": SERIAL[store.database.sqlite],
    }
    with store.database.write() as connection:
        for line in (*TABLES, *OLD):
            for name, words in form.items():
                line = line.replace(name, words)
            connection.execute(text(line))
    (store.files / IDENTITY).write_text("this one")
    backup(store, tmp_path / "copy")  # before the service was ever started in this version
    with Store(str(tmp_path / "copy")) as copy:
        assert copy.prediction(7, 0).entropy == 0.5
        assert (copy.prediction(7, 0).state, copy.prediction(7, 0).question) == ("unqueried", "class")
    store.close()
    service = open_service(*place)
    assert service.store.prediction(7, 0).entropy == 0.5
    assert service.store.prediction(7, 0).score is None
    service.create(beginning("new"), "test")
    outcome = service.send("new", lambda session: session.predict(png(0), "0.png", "test")).result()
    kept = service.store.prediction(service.stream("new").id, 0)
    assert kept.score == outcome.row.score == kept.entropy  # it asks by entropy
    with service.store.database.engine.connect() as connection:
        for name, table in metadata.tables.items():
            reflected = inspect(connection).get_columns(name)
            columns = {each["name"]: (each["nullable"], each["type"]._type_affinity) for each in reflected}
            assert columns == {each.name: (each.nullable, each.type._type_affinity) for each in table.c}


def test_a_log_in_older_words_gives_the_same_bits(place: tuple[str, Path], open_service: Any) -> None:
    service = open_service(*place)
    stream = service.create(beginning(), "test").id
    waiting = live_through(Served(service), range(28))
    service.send("pets", lambda session: session.skip(waiting[0], "test")).result()
    service.send("pets", lambda session: session.undo(waiting[0], "test")).result()
    bits, log = Served(service).digest(), service.store.events(stream)
    assert {event.kind for event in log} == {"predicted", "answered", "skipped", "undone", "classes_added"}
    service.stop()
    store = Store(*place)
    with store.database.write() as connection:
        for old, new in reversed(EVENTS.items()):  # "undo" and "reopen" are one word now
            connection.execute(text(f"UPDATE events SET kind = '{old}' WHERE kind = '{new}'"))
    store.seal()
    shutil.rmtree(store.snapshots(stream).folder)
    store.close()
    service = open_service(*place)
    assert service.store.events(stream) == log
    assert Served(service).digest() == bits
    Served(service).label(waiting[0], "ship")
    with service.store.database.read() as connection:
        words = connection.scalars(text("SELECT kind FROM events ORDER BY seq")).all()
    assert {"predict", "label", "skip", "reopen", "classes"} == set(words[:-1])  # as they were written
    assert words[-1] == "answered"
    assert list(service.store.damage()) == []


def test_tables_without_their_version_are_refused(place: tuple[str, Path], open_service: Any) -> None:
    """A damaged store is not taken for a new one, nor is another program's database."""
    service = open_service(*place)
    service.create(beginning(), "test")
    service.stop()
    store = Store(*place)
    heads = {path.name: path.read_bytes() for path in (store.files / "heads").iterdir()}
    with store.database.write() as connection:
        connection.execute(text("DROP TABLE alembic_version"))
        connection.execute(text("DELETE FROM audit"))
    store.close()
    with pytest.raises(StateError, match="damaged, or another program's"):
        open_service(*place)
    assert {path.name: path.read_bytes() for path in (store.files / "heads").iterdir()} == heads


def test_an_upgrade_whose_read_fails_leaves_the_notes(
    place: tuple[str, Path], open_service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = open_service(*place)
    service.create(beginning(), "test")
    live_through(Served(service), range(4))
    service.stop()
    store = Store(*place)
    monkeypatch.setattr(store.database, "read_all", once_failing(store.database.read_all))
    with pytest.raises(StoreDownError):
        store.heads.renew()
    store.close()
    assert list(open_service(*place).store.damage()) == []


def once_failing(real: Any) -> Any:
    def fail() -> Any:
        raise StoreDownError("The connection is lost.", retry_after=1)

    calls = iter([fail])
    return lambda: next(calls, real)()
