"""A store of an earlier version is brought to this one's form, and loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from taps.serve.backup import backup
from taps.serve.store import IDENTITY, Store
from taps.serve.tables import metadata
from tests.serve.conftest import beginning, png

OLD = (
    "INSERT INTO streams (id, name, method, classes, settings, seed, hold, created) "
    """VALUES (7, 'pets', 'taps', '["cat", "dog"]', '{"views": 1}', 0, 0, 0)""",
    "INSERT INTO events (stream, seq, kind, prediction, value, who, at) "
    """VALUES (7, 1, 'predict', 0, '"lost"', 'x', 0)""",
    'INSERT INTO predictions (stream, id, seq, at, image, kept, name, "index", label, top, entropy, seconds, '
    "state) VALUES (7, 0, 1, 0, 'ab', false, 'a', 0, 'cat', '[]', 0.5, 0, 'silent')",
    "INSERT INTO meta (name, value) VALUES ('identity', 'this one')",
)


def test_a_store_without_scores_goes_on(place: tuple[str, Path], tmp_path: Path, open_service: Any) -> None:
    store = Store(*place)
    store.database.migrate("0002")
    with store.database.write() as connection:
        for line in OLD:
            connection.execute(text(line))
    (store.files / IDENTITY).write_text("this one")
    backup(store, tmp_path / "copy")  # before the service was ever started in this version
    with Store(str(tmp_path / "copy")) as copy:
        assert copy.prediction(7, 0).entropy == 0.5
    store.close()
    service = open_service(*place)
    assert service.store.prediction(7, 0).entropy == 0.5
    assert service.store.prediction(7, 0).score is None
    service.create(beginning("new"), "test")
    outcome = service.send("new", lambda live: live.predict(png(0), "0.png", "test")).result()
    kept = service.store.prediction(service.stream("new").id, 0)
    assert kept.score == outcome.row.score == kept.entropy  # it asks by entropy
    with service.store.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
