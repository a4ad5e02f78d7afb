"""Makes the tables of a new store, and brings those of an older version to this version's form."""

from __future__ import annotations

from sqlalchemy import Connection, inspect

from taps.aliases import VALUES
from taps.errors import StateError
from taps.serve.checksums import seal_all
from taps.serve.tables import metadata

VERSION_TABLE = "alembic_version"  # its name in every store
BEFORE_DIGESTS = ("0001", "0002", "0003")  # versions whose rows carry none
STEPS = {
    "0001": [],
    "0002": [  # questions of yes or no; answers that name no class
        "ALTER TABLE predictions ADD COLUMN question VARCHAR(16) DEFAULT 'which' NOT NULL",
        """ALTER TABLE predictions ADD COLUMN "no" JSON DEFAULT '[]' NOT NULL""",
        'ALTER TABLE predictions ADD COLUMN "none" BOOLEAN DEFAULT false NOT NULL',
    ],
    "0003": ["ALTER TABLE predictions ADD COLUMN score DOUBLE PRECISION"],
    "0004": [  # a digest in every row; states and questions in the words of today
        *(f"ALTER TABLE {name} ADD COLUMN digest VARCHAR(32)" for name in metadata.tables),
        *(
            f"UPDATE predictions SET {column} = '{new}' WHERE {column} = '{old}'"
            for column in ("state", "question")
            for old, new in VALUES[column].items()
        ),
    ],
    "0005": ["ALTER TABLE predictions ADD COLUMN reject DOUBLE PRECISION"],
}
"""What brings the tables from the version before to each version."""


def version_of(connection: Connection) -> str | None:
    """The version of a database's tables; None where it has none yet."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return str(connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar())


def known_version(connection: Connection) -> str | None:
    """The version of a database's tables; one that cannot be used is refused."""
    before = version_of(connection)
    if before is None:
        # Tables of these names are no new store: one that lost its version, or another program's database.
        if taken := sorted(metadata.tables.keys() & set(inspect(connection).get_table_names())):
            raise StateError(
                f"The database has tables ({', '.join(taken)}) but no {VERSION_TABLE}: it is damaged, or "
                "another program's. Put a backup in its place, or use an empty database."
            )
    elif before not in STEPS:
        raise StateError(
            f"The database's form is not known ({before!r}): a newer version of taps made it, or it is "
            "damaged. Use that version, or put a backup in its place."
        )
    return before


def migrate(connection: Connection) -> bool:
    """Bring the tables to this version's form; whether anything was done."""
    before, newest = known_version(connection), max(STEPS)
    if before is None:
        metadata.create_all(connection)
        connection.exec_driver_sql(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)")
        connection.exec_driver_sql(f"INSERT INTO {VERSION_TABLE} VALUES ('{newest}')")
        return True
    if before == newest:
        return False
    for version in STEPS:
        for statement in STEPS[version] if version > before else ():
            connection.exec_driver_sql(statement)
    if before in BEFORE_DIGESTS:
        seal_all(connection)
    connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '{newest}'")
    return True
