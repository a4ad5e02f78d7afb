"""Which folder and which database belong together.

Both hold the same identity. A folder that was copied holds it, too; so each start of the service leaves a
mark in both. A database whose last mark the folder does not have went on with another copy of the folder.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import inspect

from taps.errors import StateError
from taps.files import make_durable_folder, write_durably
from taps.serve.database import FILE, LEFT

if TYPE_CHECKING:
    from taps.serve.store import Store

IDENTITY = "identity"
BEGUN = "identity.new"  # until the database has it, too
START, STARTS = "start", "starts"  # the last start in the database, all starts in the folder


class Belonging:
    """Of one store: what its folder says of its database, and the other way round."""

    def __init__(self, store: Store) -> None:
        self.store, self.files = store, store.files

    def check(self, *, copies: bool = False) -> None:
        """Refuse a folder and a database that do not belong together. Nothing is written.

        Args:
            copies: Whether a folder may be an old copy of the one that the database went on with.
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
        if known is not None and not copies:
            self._check_start()

    def begin(self) -> None:
        """Give a new store its identity; whoever is killed meanwhile goes on with the same one."""
        if self._read(IDENTITY) is None:
            if self._read(BEGUN) is None:
                write_durably(self.files / BEGUN, uuid.uuid4().hex.encode())
            self.store.set_note(IDENTITY, self._read(BEGUN) or "")
            os.replace(self.files / BEGUN, self.files / IDENTITY)

    def mark(self) -> str:
        """Leave the mark of a start: in the folder first, so that the database has none which it lacks."""
        start = uuid.uuid4().hex
        earlier = self._read(STARTS) or ""
        write_durably(self.files / STARTS, f"{earlier}\n{start}".strip().encode())
        value = f"{start} {socket.gethostname()}:{self.files.absolute()}"
        self.store.set_note(START, value)
        return value

    def set_aside(self) -> None:
        """Make room for a new store where the folder's database is gone; a store that is whole is let be."""
        if self._known() is not None:
            return
        place = self.files / f"before-{time.strftime('%Y%m%d-%H%M%S')}"
        for name in (FILE, f"{FILE}-wal", f"{FILE}-shm", LEFT, STARTS, "images", "snapshots", IDENTITY):
            if (self.files / name).exists():
                make_durable_folder(place.absolute())
                os.replace(self.files / name, place / name)
        self.store.make_folders()

    def _check_start(self) -> None:
        start, _, where = (self.store.note(START) or "").partition(" ")
        if start and start not in (self._read(STARTS) or "").split():
            raise StateError(
                f"The folder {self.files} is an old copy: the database {self._url} went on with {where}. "
                "Start the service there, or copy that folder here. If it is lost, `taps recover --yes` goes "
                "on without what this one lacks."
            )

    def _known(self) -> str | None:
        """The database's identity; SQLite is not even opened where it would make a new file."""
        if not self.store.database.there():
            return None
        with self.store.database.read() as connection:
            made = inspect(connection).has_table("meta")
        return self.store.note(IDENTITY) if made else None

    @property
    def _url(self) -> str:
        return self.store.database.url.render_as_string(hide_password=True)

    def _read(self, name: str) -> str | None:
        file = self.files / name
        return file.read_text().strip() if file.is_file() else None


def copy_marks(store: Store, place: Path) -> None:
    """Let a folder be known by the database of `store`, of which it has a copy."""
    write_durably(place / IDENTITY, (store.note(IDENTITY) or "").encode())
    write_durably(place / STARTS, (store.note(START) or "").partition(" ")[0].encode())
