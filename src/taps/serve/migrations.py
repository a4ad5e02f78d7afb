"""Makes the tables of a new store, and refuses those of another version."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, select

from taps.errors import StateError
from taps.serve import tables as t
from taps.serve.tables import metadata
from taps.streams import log

VERSION_TABLE = "alembic_version"  # its name in every store
VERSION = "0005"
KINDS = {word for name, word in vars(log).items() if name.isupper()}


def version_of(connection: Connection) -> str | None:
    """The version of a database's tables; None where it has none yet."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return str(connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar())


def known_version(connection: Connection) -> str | None:
    """The version of a database's tables; one that cannot be used is refused."""
    found = version_of(connection)
    if found is None:
        # Tables of these names are no new store: one that lost its version, or another program's database.
        if taken := sorted(metadata.tables.keys() & set(inspect(connection).get_table_names())):
            raise StateError(
                f"The database has tables ({', '.join(taken)}) but no {VERSION_TABLE}: it is damaged, or "
                "another program's. Put a backup in its place, or use an empty database."
            )
        return None
    if found != VERSION:
        raise StateError(
            f"The database has form {found!r}, and this version of taps reads {VERSION!r}: another version "
            "made it, or it is damaged. Use that version, or put a backup in its place."
        )
    if old := sorted(set(connection.scalars(select(t.events.c.kind).distinct())) - KINDS):
        raise StateError(
            f"The log of the store has events of an older version ({', '.join(old)}), which are not "
            "read. Use the version that made the store, or begin another one."
        )
    return found


def migrate(connection: Connection) -> bool:
    """Make the tables of a new store; whether anything was done."""
    if known_version(connection) is not None:
        return False
    metadata.create_all(connection)
    connection.exec_driver_sql(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)")
    connection.exec_driver_sql(f"INSERT INTO {VERSION_TABLE} VALUES ('{VERSION}')")
    return True
