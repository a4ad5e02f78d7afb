"""The images that were sent, as files named by the SHA-256 of their content; removed files wait in a bin.

An image that is sent twice is one file. The store says which files are needed.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from taps import disk
from taps.disk import PART, make_durable_folder, sync_folder
from taps.errors import StateError
from taps.files import write_durably
from taps.serve.errors import GoneError

HOUR = 3600.0
HOURS = 24  # that a removed file waits, at least
LITTLE = 500 << 20  # bytes of free disk that are few
# Names that are made here. Whatever else somebody puts into a store is not touched.
NUMBER = re.compile(r"[0-9]+")
_HOUR = re.compile(r"[0-9]{6}")
_BINNED = re.compile(_HOUR.pattern + r"/(images|snapshots|damaged)/([0-9a-f]{64}|[0-9]+)")
_IMAGE = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{62}")
_HALF = re.compile(_IMAGE.pattern + r"[0-9.-]*" + re.escape(PART))


class Bin:
    """Removed files wait here for a day, so that a mistaken removal can be undone.

    It has folders named by the hour of the removal; in each, files and folders by kind.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, path: Path, kind: str) -> None:
        """Move a file or a folder into the bin."""
        place = self.folder / str(_hour()) / kind
        make_durable_folder(place.absolute())
        disk.move(path, place / path.name)

    def items(self, kind: str = "*") -> Iterator[Path]:
        yield from _mine(self.folder, f"*/{kind}/*", _BINNED)

    def bring_back(self, kind: str, home: Callable[[str], Path | None]) -> None:
        """Move back each item for which `home` gives a place where nothing is."""
        for path in self.items(kind):
            place = home(path.name)
            if place is not None and not place.exists():
                make_durable_folder(place.parent.absolute())
                disk.move(path, place)

    def empty(self) -> None:
        """Delete what has waited long enough; with little room on the disk, the oldest before its time."""
        for hour in _mine(self.folder, "*", _HOUR):  # the oldest first
            if int(hour.name) + HOURS < _hour() or shutil.disk_usage(self.folder).free < LITTLE:
                for path in _mine(self.folder, f"{hour.name}/*/*", _BINNED):
                    disk.remove_tree(path)
                for folder in (*hour.glob("*"), hour):
                    disk.remove_empty(folder)  # somebody else's files may be in it


def _mine(folder: Path, pattern: str, names: re.Pattern[str]) -> Iterator[Path]:
    """What this module made in a folder."""
    for path in sorted(folder.glob(pattern)):
        if names.fullmatch(path.relative_to(folder).as_posix()):
            yield path


def _hour() -> int:
    return int(time.time() // HOUR)


class Blobs:
    """Content-addressed files under one folder.

    A file that was put and not yet released is never removed: its use may not be on record yet.
    """

    def __init__(self, folder: Path, bin: Bin) -> None:
        self.folder, self.bin = folder, bin
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def path(self, name: str) -> Path:
        return self.folder / name[:2] / name

    def put(self, data: bytes) -> str:
        """Write data unless it is there; its name. `release` it once its use is on record, or given up."""
        name = hashlib.sha256(data).hexdigest()
        with self._lock:
            self._held[name] += 1
            shared = self._held[name] > 1
        try:
            path = self.path(name)
            if not self._whole(path, data):
                if not self.folder.is_dir():  # a deleted folder is not made again
                    raise FileNotFoundError(f"The folder {self.folder} is gone.")
                make_durable_folder(path.parent)
                write_durably(path, data)
            elif shared:  # another thread is writing it, and may not have synced the folder yet
                sync_folder(path.parent)
        except BaseException:
            self.release(name)
            raise
        return name

    def _whole(self, path: Path, data: bytes) -> bool:
        """Whether the file is there already; a damaged one is written again."""
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
        """The bytes that were put; damaged ones are refused."""
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

    def remove(self, name: str, needed: Callable[[str], bool | None]) -> bool:
        """Move a file to the bin unless it is held or needed; whether it went."""
        with self._lock:
            if name in self._held or needed(name):
                return False
            with suppress(FileNotFoundError):
                self.bin.put(self.path(name), "images")
            return True

    def names(self) -> Iterator[str]:
        """All files."""
        for path in _mine(self.folder, "??/*", _IMAGE):
            yield path.name

    def sweep(self, needs: Callable[[str], bool | None], *, orphans: bool) -> int:
        """Remove half-written files and files needed no longer, with `orphans` also those of no record."""
        removed = 0
        for part in _mine(self.folder, f"??/*{PART}", _HALF):
            disk.remove(part)
            removed += 1
        for name in list(self.names()):
            needed = needs(name)
            if needed is False or (needed is None and orphans):
                removed += self.remove(name, lambda _: False)
        return removed

    def probe(self) -> None:
        """Write, fsync and remove a byte: raises where the disk is full or read-only."""
        path = self.folder / "probe"
        write_durably(path, b".")
        disk.remove(path)
        sync_folder(self.folder)
