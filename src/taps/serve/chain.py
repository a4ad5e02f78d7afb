"""Checksums of all that the tables hold, so that no bit of a row changes unnoticed.

Each row carries a digest of its values; that of an event covers the digest of the event before it, too, so
that the events of a stream are a chain. How far each log goes is known outside the database (`Heads`): SQLite
drops, without a word, all that follows a damaged place in its log of writes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Double,
    Select,
    Table,
    bindparam,
    inspect,
    select,
    text,
    update,
)

from taps.serve import tables as t

DIGEST = "digest"
BEFORE_DIGESTS = ("0001", "0002", "0003")  # forms of the database whose rows carry none

_TABLES = t.metadata.sorted_tables
_FLOATS = {table: {column.name for column in table.c if isinstance(column.type, Double)} for table in _TABLES}
_NAMES = {table: [column.name for column in table.c if column.name != DIGEST] for table in _TABLES}


def digest_of(table: Table, values: Mapping[str, Any], before: str = "") -> str:
    """Of a row's values; columns that hold nothing do not count, so that new ones may be added.

    Args:
        table: The row's.
        values: By the names of its columns.
        before: The digest of the row it follows.
    """
    floats = _FLOATS[table]
    held = {name: values.get(name) for name in _NAMES[table]}
    content = {
        name: float(value) if name in floats and isinstance(value, int) else value
        for name, value in held.items()
        if value is not None
    }
    said = json.dumps([table.name, before, content], default=repr)
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def digests(table: Table, rows: Iterable[Any], *, stored: bool) -> Iterator[tuple[Any, str]]:
    """Rows in their order, each with the digest it should have, after those before it as they are stored."""
    before, stream = "", None
    for row in rows:
        if table is t.events and row["stream"] != stream:
            before, stream = "", row["stream"]
        found = digest_of(table, row, before)
        if table is t.events:
            before = str(row[DIGEST]) if stored else found
        yield row, found


def seal(connection: Connection, table: Table, *where: ColumnElement[bool]) -> str:
    """Give rows the digests of what they hold now; the last one. Of events, all of a stream at a time."""
    return _seal(connection, table, select(table).where(*where))


def _seal(connection: Connection, table: Table, query: Select[Any]) -> str:
    keys = list(table.primary_key)
    rows = connection.execute(query.order_by(*keys)).mappings().all()
    found = [
        {**{f"key_{key.name}": row[key.name] for key in keys}, "found": digest}
        for row, digest in digests(table, rows, stored=False)
    ]
    if found:
        mine = [key == bindparam(f"key_{key.name}") for key in keys]
        connection.execute(update(table).where(*mine).values(digest=bindparam("found")), found)
    return str(found[-1]["found"]) if found else ""


def seal_all(connection: Connection) -> None:
    """Take what the tables hold for right."""
    for table in _TABLES:
        there = {column["name"] for column in inspect(connection).get_columns(table.name)}  # of its version
        _seal(connection, table, select(*(column for column in table.c if column.name in there)))


def changed(connection: Connection) -> Iterator[str]:
    """The rows that are not what was written, in sentences."""
    for table in _TABLES:
        query = select(table).order_by(*table.primary_key)
        try:
            rows = connection.execute(query).mappings()
            for row, digest in digests(table, rows, stored=True):
                if row[DIGEST] != digest:
                    which = ", ".join(f"{key.name} {row[key.name]!r}" for key in table.primary_key)
                    yield f"A row of the table {table.name!r} ({which}) is not what was written."
        except (ValueError, TypeError) as error:
            yield f"The table {table.name!r} cannot be read ({error})."


def form_of(connection: Connection) -> str:
    """A digest of how the tables are made, of their version and of the numbers given to streams."""
    version = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    said: list[Any] = [version]
    if connection.dialect.name == "sqlite":
        made = connection.execute(text("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"))
        given = connection.execute(text("SELECT name, seq FROM sqlite_sequence ORDER BY name"))
        said += [list(row) for row in (*made, *given)]
    return hashlib.blake2b(json.dumps(said, default=repr).encode(), digest_size=16).hexdigest()
