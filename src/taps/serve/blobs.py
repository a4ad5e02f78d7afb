"""The images that were sent, as files named by what is in them.

One file for one content, whoever sent it and however often. Which are needed is for the store to say.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from taps.errors import StateError
from taps.files import PART, make_durable_folder, sync_folder, write_durably
from taps.serve.bin import Bin
from taps.serve.errors import GoneError


class Blobs:
    """Content-addressed files under one folder.

    A file somebody has put and not yet released is never removed: its use may not be on record yet.

    Args:
        folder: Of the files.
        bin: Where removed ones wait.
    """

    def __init__(self, folder: Path, bin: Bin) -> None:
        self.folder, self.bin = folder, bin
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
                if not self.folder.is_dir():  # it was deleted, and is not made anew
                    raise FileNotFoundError(f"The folder {self.folder} is gone.")
                make_durable_folder(path.parent)
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
        """Move a file to the bin that nobody holds and nobody needs; whether it went."""
        with self._lock:
            if name in self._held or needed(name):
                return False
            with suppress(FileNotFoundError):
                self.bin.put(self.path(name), "images")
            return True

    def names(self) -> Iterator[str]:
        """All that are there."""
        for path in sorted(self.folder.glob("??/*")):
            if not path.name.endswith(PART):
                yield path.name

    def sweep(self, spoken_of: Callable[[str], bool | None], *, orphans: bool) -> int:
        """Remove half-written files, and files needed no longer; how many.

        Args:
            spoken_of: Whether a file is needed; None where no record ever spoke of it.
            orphans: Whether such files go, too.
        """
        removed = 0
        for part in self.folder.glob(f"??/*{PART}"):
            part.unlink(missing_ok=True)
            removed += 1
        for name in list(self.names()):
            said = spoken_of(name)
            if said is False or (said is None and orphans):
                removed += self.remove(name, lambda _: False)
        return removed

    def probe(self) -> None:
        """Write, fsync and remove a byte: raises where the disk is full or read-only."""
        path = self.folder / "probe"
        write_durably(path, b".")
        path.unlink()
        sync_folder(self.folder)
