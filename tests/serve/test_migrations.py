"""The tables of a store are this version's, or the store is refused and loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from taps.errors import StateError
from taps.serve.errors import StoreDownError
from taps.serve.store import Store
from tests.serve.conftest import beginning
from tests.serve.streams import Served, live_through


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
