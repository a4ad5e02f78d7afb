"""Guards of a store: its folder and its database belong together, and its files stay while the service runs.

Folder and database hold the same identity. A copied folder holds it, too; so each start of the service leaves
a mark in both. A database whose last mark the folder lacks has continued with another copy of the folder.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
import uuid
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from sqlalchemy import inspect

from taps import disk
from taps.data.names import shown
from taps.disk import make_durable_folder
from taps.errors import StateError
from taps.files import write_durably
from taps.serve.database import FILE, LEFT
from taps.serve.errors import StoreDownError

if TYPE_CHECKING:
    from taps.serve.store import Store

IDENTITY = "identity"
BEGUN = "identity.new"  # until the database has it, too
START, STARTS = "start", "starts"  # the last start in the database, all starts in the folder
LOOK = 0.2  # seconds to look at folders of images at a time; the next look continues from there
SETTLED = 100_000_000  # nanoseconds after which a folder's modification time shows a further change
MARK = 64  # bytes an identity has at most; other programs have larger files of this name


def is_store(folder: Path) -> bool:
    """Whether a folder is a store."""
    return _marked(folder / IDENTITY)


def _marked(file: Path) -> bool:
    return file.is_file() and file.stat().st_size <= MARK


class Pairing:
    """What a store's folder says of its database, and the other way round."""

    def __init__(self, store: Store) -> None:
        self.store, self.files = store, store.files

    def refuse_strangers(self) -> None:
        """Refuse a folder with somebody's files: only an empty one becomes a store. Nothing is written."""
        if is_store(self.files) or _marked(self.files / BEGUN):
            return
        try:
            others = sorted(path.name for path in self.files.iterdir() if not _harmless(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateError(
                f"The folder {self.files} cannot be used ({error.strerror}); choose another place for it."
            ) from error
        if others and (known := self._lost()):
            raise StateError(
                f"{self.files} lacks its file {IDENTITY!r}, by which a store is known; write it again: it "
                f"holds {known}."
            )
        if others:
            raise StateError(
                f"{self.files} is no store and holds other files ({shown(others, most=3)}); give a folder "
                "that is empty or does not exist. Nothing was changed."
            )

    def _lost(self) -> str | None:
        """The identity in the database of a folder that has none; a file of SQLite's is not written to."""
        if not self.store.database.sqlite:
            return self._known()
        url = f"file:{quote(str(self.store.database.file.absolute()))}?mode=ro&immutable=1"
        with suppress(sqlite3.Error), closing(sqlite3.connect(url, uri=True)) as connection:
            found = connection.execute(f"SELECT value FROM meta WHERE name = '{IDENTITY}'").fetchone()
            return None if found is None else str(found[0])
        return None

    def check(self, *, copies: bool = False) -> None:
        """Refuse a folder and a database that do not belong together. Nothing is written.

        Args:
            copies: Whether the folder may be an old copy of the one that the database continued with.
        """
        here, known = self._read(IDENTITY), self._known()
        if known is None and (here is not None or self.store.database.log_alone()):
            raise StateError(
                f"The folder {self.files} holds the files of a store, but the database {self._url} is empty. "
                "Put its database back, or name another folder. To begin a new store here, run `taps serve "
                "--anew`, which sets the files aside."
            )
        if here is None and known not in (None, self._read(BEGUN)):
            raise StateError(
                f"{self.files} is not the folder this database began with; give that one. If only the file "
                f"{self.files / IDENTITY} was lost, write it again: it holds {known}."
            )
        if here is not None and here != known:
            raise StateError(f"The folder {self.files} belongs to another database; give its own.")
        start, _, where = (self.store.note(START) or "").partition(" ") if known else ("", "", "")
        if start and not copies and start not in (self._read(STARTS) or "").split():
            raise StateError(
                f"The folder {self.files} is an old copy: the database {self._url} went on with {where}. "
                "Start the service there, or copy that folder here. If it is lost, `taps recover --yes` goes "
                "on without what this one lacks."
            )

    def claim(self) -> None:
        """Mark the folder as a store that begins, before anything else is made in it."""
        if self._read(IDENTITY) is None and self._read(BEGUN) is None:
            write_durably(self.files / BEGUN, uuid.uuid4().hex.encode())

    def begin(self) -> None:
        """Give a new store its identity; a start that was killed meanwhile is continued with the same one."""
        if self._read(IDENTITY) is None:
            self.store.set_note(IDENTITY, self._read(BEGUN) or "")
            disk.move(self.files / BEGUN, self.files / IDENTITY)

    def mark(self) -> str:
        """Leave the mark of a start: in the folder first, so that the database never has one it lacks."""
        start = uuid.uuid4().hex
        earlier = self._read(STARTS) or ""
        write_durably(self.files / STARTS, f"{earlier}\n{start}".strip().encode())
        value = f"{start} {socket.gethostname()}:{self.files.absolute()}"
        self.store.set_note(START, value)
        return value

    def copy_marks(self, place: Path) -> None:
        """Let a folder belong to this store's database, of which it has a copy."""
        write_durably(place / IDENTITY, (self.store.note(IDENTITY) or "").encode())
        write_durably(place / STARTS, (self.store.note(START) or "").partition(" ")[0].encode())

    def set_aside(self) -> None:
        """Move away the files of a store whose database is gone; a whole store is left alone."""
        if self._known() is not None:
            return
        if self._read(BEGUN) is None:  # it is known for a store at every moment
            write_durably(self.files / BEGUN, uuid.uuid4().hex.encode())
        place = self.files / f"before-{time.strftime('%Y%m%d-%H%M%S')}"
        for name in (FILE, f"{FILE}-wal", f"{FILE}-shm", LEFT, STARTS, "images", "snapshots", IDENTITY):
            if (self.files / name).exists():
                make_durable_folder(place.absolute())
                disk.move(self.files / name, place / name)

    def _known(self) -> str | None:
        """The database's identity; SQLite is not even opened where it would make a new file."""
        if not self.store.database.exists():
            return None
        with self.store.database.read() as connection:
            made = inspect(connection).has_table("meta")
        return self.store.note(IDENTITY) if made else None

    @property
    def _url(self) -> str:
        return self.store.database.url.render_as_string(hide_password=True)

    def _read(self, name: str) -> str | None:
        file = self.files / name
        return file.read_text(errors="replace").strip() if file.is_file() else None


class Watch:
    """Files and folders that must not be deleted or replaced: who has a file open does not notice it.

    Args:
        paths: The outermost first, for that one is named.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._inodes = {path: _inode(path) for path in paths}

    def check(self) -> None:
        for path, inode in self._inodes.items():
            if _inode(path) != inode:
                raise StoreDownError(
                    f"{path} was deleted or replaced while the service runs, and nothing is recorded. "
                    "Move it back; or stop the service, put a backup in its place, and start again.",
                    retry_after=1,
                )


class ImageWatch:
    """Notices images that were deleted though they are kept, by the times of their folders."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._changed = {name: self._time(name) for name in (f"{number:02x}" for number in range(256))}
        self._missing: set[str] = set()

    def missing(self) -> list[Path]:
        end = time.monotonic() + LOOK
        for name, seen in list(self._changed.items()):
            if self._time(name) != seen:
                self._look(name)
            if time.monotonic() > end:
                break
        blobs = self.store.blobs
        self._missing = {
            name for name in self._missing if not blobs.path(name).exists() and self.store.needs(name)
        }
        return [blobs.path(name) for name in sorted(self._missing)]

    def _look(self, name: str) -> None:
        at = self._time(name)
        kept = self.store.kept_images(name)  # before the files: an image is there before its record
        self._missing |= kept - {path.name for path in (self.store.blobs.folder / name).glob("*")}
        del self._changed[name]  # the folder looked at last comes last
        self._changed[name] = at if time.time_ns() - at > SETTLED else -1

    def _time(self, name: str) -> int:
        try:
            return os.stat(self.store.blobs.folder / name).st_mtime_ns
        except OSError:
            return 0


def _harmless(path: Path) -> bool:
    """Whether it makes a folder nobody's: hidden, of the file system, of a start that was killed."""
    if path.name == ".lock":
        return path.stat().st_size == 0
    return path.name.startswith((".", f"{BEGUN}.")) or path.name == "lost+found"


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
