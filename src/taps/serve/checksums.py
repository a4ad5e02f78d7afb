"""Checksums of everything in the database, so that no changed bit goes unnoticed.

Each row carries a digest of its values. The digest of an event covers that of the event before it: the events
of a stream are a chain. The end of each log is also noted outside the database (`Heads`), because SQLite
silently drops whatever follows a damaged place in its write-ahead log.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Double, Table, bindparam, func, select, text, update

from taps import disk
from taps.disk import make_durable_folder, sync_file
from taps.files import write_durably
from taps.serve import tables as t
from taps.serve.database import Database

log = logging.getLogger("taps.serve")

DIGEST = "digest"
AUDIT = "audit"  # the log of who did what; the other logs are named by the number of their stream
SIZE = 128  # bytes of each of the two places in a file of `Heads`
BEHIND = "what came after is lost, and its numbers would be given a second time."
End = tuple[int, str]  # the number of an entry of a log, and its digest

_TABLES = t.metadata.sorted_tables
_FLOATS = {table: {column.name for column in table.c if isinstance(column.type, Double)} for table in _TABLES}
_NAMES = {table: [column.name for column in table.c if column.name != DIGEST] for table in _TABLES}


def digest_of(table: Table, values: Mapping[str, Any], before: str = "") -> str:
    """The digest of a row; empty columns do not count, so that new ones may be added.

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
    form = json.dumps([table.name, before, content], default=repr)
    return hashlib.blake2b(form.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


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
    keys = list(table.primary_key)
    rows = connection.execute(select(table).where(*where).order_by(*keys)).mappings().all()
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
        seal(connection, table)


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
    form: list[Any] = [version]
    if connection.dialect.name == "sqlite":
        made = connection.execute(text("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name"))
        given = connection.execute(text("SELECT name, seq FROM sqlite_sequence ORDER BY name"))
        form += [list(row) for row in (*made, *given)]
    return hashlib.blake2b(json.dumps(form, default=repr).encode(), digest_size=16).hexdigest()


class Heads:
    """The last acknowledged entry of each log, in a small file for each log.

    There are two copies of it, the second among the images: a database that was put back from a backup
    together with the first, but not with the images, is behind what they say. The newer one counts.

    A file is written in place after each commit and not fsynced: it outlives a killed process. After a power
    cut it may be behind the log, never ahead. Two places in it take turns, so that one is always whole.
    """

    def __init__(self, folders: tuple[Path, Path], database: Database) -> None:
        self.folders, self.database = folders, database
        self.folder = folders[0]
        self._noted: dict[str, End] = {}

    def note(self, name: str, number: int, digest: str) -> None:
        """Note an entry that is on record. A file that cannot be written stays behind, which does no harm."""
        self._noted[name] = (number, digest)
        for folder in self.folders:
            try:
                if folder is not self.folder:
                    folder.mkdir(mode=0o750, exist_ok=True)
                _put(folder / name, number, digest)
            except OSError as error:
                log.warning(f"The end of the log {name} could not be noted in {folder}: {error}.")

    def sync(self, name: str) -> None:
        """Bring a log's file to the disk, where it can be written."""
        with suppress(OSError):
            sync_file(self.folder / name)

    def read(self) -> dict[str, End | str | None]:
        """The noted end of each log of the database: None where there is none, a sentence if damaged."""
        found: dict[str, End | str | None] = {}
        for name in self._logs():
            data, ends = b"", list[End]()
            for folder in self.folders:
                with suppress(FileNotFoundError):
                    data += (copy := (folder / name).read_bytes())
                    ends += [end for end in _ends(copy) if end is not None]
            damaged = not ends and data.strip(b"\0")
            found[name] = f"The file {self.folder / name} is damaged." if damaged else max(ends, default=None)
        return found

    def unlike(self, connection: Connection, noted: Mapping[str, End | str | None]) -> Iterator[str]:
        """Logs that end before what was noted, or hold another entry there, in sentences."""
        for name, end in noted.items():
            table, number, mine = _log_of(name)
            title = title_of(name)
            last = connection.scalar(select(func.max(number)).where(*mine)) or 0
            if isinstance(end, str):
                yield end
            elif end is None:
                if last > 1:  # a killed process may have noted nothing of the first entry
                    yield f"{title} has {last} entries, and nothing in {self.folder} says how many it had."
            elif last < end[0]:
                yield f"{title} ends at {last}, but {end[0]} was acknowledged: {BEHIND}"
            elif connection.scalar(select(table.c.digest).where(*mine, number == end[0])) != end[1]:
                yield f"{title}: entry {end[0]} is not the one that was acknowledged."

    def put_back(self) -> list[Path]:
        """Write the files again that were deleted; which they were."""
        lost = [
            folder / name for name in list(self._noted) for folder in self.folders
            if not (folder / name).exists()
        ]  # fmt: skip
        for path in lost:
            log.error(f"{path} was deleted; it is written again.")
            self.note(path.name, *self._noted[path.name])
        return lost

    def note_all(self) -> None:
        """Note the last entry of each log as the database has it."""
        for name, end in self._found().items():
            self.note(name, *end)

    def renew(self) -> None:
        """Forget what was noted, and note what the database has."""
        found = self._found()  # before anything is forgotten: the database may be out of reach
        for folder in self.folders:
            make_durable_folder(folder.absolute())
            for name, end in found.items():
                write_durably(folder / name, _packed(*end))
            for path in folder.iterdir():
                if path.name not in found and (path.name == AUDIT or path.name.isdecimal()):
                    disk.remove(path)
        self._noted = found

    def _found(self) -> dict[str, End]:
        """The last entry of each log as the database has it."""
        found: dict[str, End] = {}
        with self.database.read_all() as connection:
            for name in self._logs():
                table, number, mine = _log_of(name)
                query = select(number, table.c.digest).where(*mine).order_by(number.desc()).limit(1)
                if row := connection.execute(query).first():
                    found[name] = (int(row[0]), str(row[1]))
        return found

    def remove(self, name: str) -> None:
        self._noted.pop(name, None)
        for folder in self.folders:
            disk.remove(folder / name)

    def _logs(self) -> list[str]:
        with self.database.read() as connection:
            return [AUDIT, *map(str, connection.scalars(select(t.streams.c.id)))]


def _log_of(name: str) -> tuple[Table, Column[int], list[ColumnElement[bool]]]:
    """The table of a log, the column of its numbers, and the condition for its rows."""
    if name == AUDIT:
        return t.audit, t.audit.c.id, []
    return t.events, t.events.c.seq, [t.events.c.stream == int(name)]


def title_of(name: str) -> str:
    """A log's name in sentences."""
    return "The log of who did what" if name == AUDIT else f"The log of stream {name}"


def _put(path: Path, number: int, digest: str) -> None:
    """Write an end into the place of a file that holds the older one."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        ends = list(_ends(os.pread(handle, 2 * SIZE, 0)))
        newest = max((0, 1), key=lambda place: ends[place] or (-1, ""))
        os.pwrite(handle, _packed(number, digest), SIZE * (1 - newest))
    finally:
        os.close(handle)


def _packed(number: int, digest: str) -> bytes:
    entry = f"{number} {digest}"
    return f"{entry} {_sum(entry)}\n".encode().ljust(SIZE)


def _ends(data: bytes) -> Iterator[End | None]:
    """What the two places hold; None for one that is empty or not whole."""
    for place in (data[:SIZE], data[SIZE : 2 * SIZE]):
        words = place.decode("ascii", "replace").split()
        whole = len(words) == 3 and _sum(" ".join(words[:2])) == words[2]
        yield (int(words[0]), words[1]) if whole else None


def _sum(entry: str) -> str:
    return hashlib.blake2b(entry.encode(), digest_size=8).hexdigest()
