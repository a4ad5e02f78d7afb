"""The images that were sent, as files named by what is in them.

One file for one content, whoever sent it and however often. Which are needed is for the store to say.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from taps.errors import StateError
from taps.files import PART
from taps.serve.disk import make_folder, sync_folder, write_durably
from taps.serve.errors import GoneError


class Blobs:
    """Content-addressed files under one folder.

    A file somebody has put and not yet released is never removed: its use may not be on record yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def path(self, name: str) -> Path:
        return self.folder / name[:2] / name

    def put(self, data: bytes) -> str:
        """Write it unless it is there; its name. `release` it once its use is on record, or given up."""
        name = hashlib.sha256(data).hexdigest()
        with self._lock:
            self._held[name] += 1
            shared = self._held[name] > 1
        try:
            path = self.path(name)
            if not self._whole(path, data):
                make_folder(path.parent)
                write_durably(path, data)
            elif shared:  # whoever is writing it may not have come to that yet
                sync_folder(path.parent)
        except BaseException:
            self.release(name)
            raise
        return name

    def _whole(self, path: Path, data: bytes) -> bool:
        """Whether the file is there already; one that is damaged is written anew."""
        try:
            return path.stat().st_size == len(data) and path.read_bytes() == data
        except OSError:
            return False

    def release(self, name: str) -> None:
        with self._lock:
            self._held[name] -= 1
            if self._held[name] <= 0:
                del self._held[name]

    def read(self, name: str) -> bytes:
        """The bytes that were put; damage is noticed, never handed on."""
        try:
            data = self.path(name).read_bytes()
        except FileNotFoundError:
            raise GoneError(f"The image {name[:12]}… is no longer kept.") from None
        except OSError as error:
            raise StateError(f"The image {self.path(name)} cannot be read ({error}).") from error
        if hashlib.sha256(data).hexdigest() != name:
            raise StateError(
                f"The image {self.path(name)} is damaged; put it back from a backup or run `taps recover`."
            )
        return data

    def remove(self, name: str, needed: Callable[[str], bool]) -> bool:
        """Remove a file nobody holds and nobody needs; whether it was removed."""
        with self._lock:
            if name in self._held or needed(name):
                return False
            path = self.path(name)
            path.unlink(missing_ok=True)
            return True

    def names(self) -> Iterator[str]:
        """All that are there."""
        for path in sorted(self.folder.glob("??/*")):
            if not path.name.endswith(PART):
                yield path.name

    def sweep(self, needed: Callable[[str], bool]) -> int:
        """Remove what a killed process left: half-written files, and files no record speaks of."""
        removed = 0
        for part in self.folder.glob(f"??/*{PART}"):
            part.unlink(missing_ok=True)
            removed += 1
        for name in list(self.names()):
            removed += self.remove(name, needed)
        return removed

    def probe(self) -> None:
        """Write, fsync and remove a byte: raises where the disk is full or read-only."""
        path = self.folder / "probe"
        write_durably(path, b".")
        path.unlink()
        sync_folder(self.folder)
