"""Misses the files of a running store: whoever has a file open does not see that it was deleted."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from taps.serve.errors import StoreDownError

if TYPE_CHECKING:
    from taps.serve.store import Store

LOOK = 0.2  # seconds to look at folders of images at a time; the next look goes on from there
SETTLED = 100_000_000  # nanoseconds after which a folder's time of change tells of a further change


class Watch:
    """Files and folders that stay the same ones while the service runs.

    Args:
        paths: The outermost first, for that one is named.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._marks = {path: _mark(path) for path in paths}

    def check(self) -> None:
        for path, mark in self._marks.items():
            if _mark(path) != mark:
                raise StoreDownError(
                    f"{path} was deleted or replaced while the service runs, and nothing is recorded. "
                    "Move it back; or stop the service, put a backup in its place, and start again.",
                    retry_after=1,
                )


class ImageWatch:
    """Images to be kept that are gone since this was made. Folders that have changed are looked at."""

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
        del self._changed[name]  # the one looked at last comes last
        self._changed[name] = at if time.time_ns() - at > SETTLED else -1

    def _time(self, name: str) -> int:
        try:
            return os.stat(self.store.blobs.folder / name).st_mtime_ns
        except OSError:
            return 0


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
