"""The tables of the store. The event log is the truth; `predictions` follows from it.

The `digest` of a row is that of its other columns (`taps.serve.checksums`).
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Double, Integer, String, Table, Text

from taps.streams.row import Row

metadata = sa.MetaData()

meta = Table(
    "meta",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", Text),
    Column("digest", String(32)),
)

streams = Table(
    "streams",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("method", String(64), nullable=False),
    Column("classes", sa.JSON, nullable=False),  # as it began; later ones are in the log
    Column("settings", sa.JSON, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("deadline", Double),  # seconds a question waits; none: for ever
    Column("hold", Double, nullable=False),  # seconds a caller of an ask_first stream waits for the annotator
    Column("created", Double, nullable=False),
    Column("digest", String(32)),
    sqlite_autoincrement=True,  # the number of a deleted stream is never given again
)

events = Table(
    "events",
    metadata,
    Column("stream", Integer, sa.ForeignKey("streams.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),  # a word of `taps.streams.log`
    Column("prediction", Integer),
    Column("value", sa.JSON),  # the answer; the names of new classes
    Column("key", String(200)),  # idempotency key
    Column("who", String(64), nullable=False),
    Column("at", Double, nullable=False),
    Column("digest", String(32)),
    sa.UniqueConstraint("stream", "key", name="one_event_a_key"),
)

TYPES: dict[str, Any] = {"int": Integer(), "float": Double(), "str": Text(), "bool": sa.Boolean()}
SHORT = {"image": String(64), "state": String(16), "question": String(16), "ended_by": String(64)}


def column(field: Field[Any]) -> Column[Any]:
    """The column that holds a field of `Row`, by its annotation; JSON for other types."""
    kind = str(field.type)
    plain = kind.removesuffix(" | None")
    made = SHORT.get(field.name) or TYPES.get(plain) or sa.JSON()
    if field.name == "id":
        return Column(field.name, made, primary_key=True, autoincrement=False)
    default = None if field.default is MISSING else field.default  # for rows of versions without the column
    return Column(field.name, made, nullable=plain != kind, default=default)


predictions = Table(
    "predictions",
    metadata,
    Column("stream", Integer, sa.ForeignKey("streams.id", ondelete="CASCADE"), primary_key=True),
    *map(column, fields(Row)),
    Column("digest", String(32)),
    sa.Index("predictions_by_state", "stream", "state"),
    sa.Index("predictions_by_image", "image"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("roles", String(64), nullable=False),
    Column("stream", String(64)),  # none: every stream
    Column("parent", String(16)),  # of a browser's session: the token it was opened with
    Column("created", Double, nullable=False),
    Column("expires", Double),
    Column("revoked", Double),
    Column("digest", String(32)),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at", Double, nullable=False),
    Column("who", String(64), nullable=False),
    Column("action", String(32), nullable=False),
    Column("subject", Text, nullable=False),
    Column("digest", String(32)),
)
