"""Removed files wait for a day: a removal that was a mistake can be taken back."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from taps.files import make_durable_folder

HOUR = 3600.0
HOURS = 24  # that a file waits, at least
LITTLE = 500 << 20  # bytes of free disk that are few


class Bin:
    """Folders named by the hour of the removal; in each, files and folders by kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, path: Path, kind: str) -> None:
        """Move a file or a folder here."""
        place = self.folder / str(_hour()) / kind
        make_durable_folder(place.absolute())
        os.replace(path, place / path.name)

    def items(self, kind: str = "*") -> Iterator[Path]:
        yield from sorted(self.folder.glob(f"*/{kind}/*"))

    def bring_back(self, kind: str, home: Callable[[str], Path | None]) -> None:
        """Move back whatever has a home by its name, and is not there."""
        for path in self.items(kind):
            place = home(path.name)
            if place is not None and not place.exists():
                make_durable_folder(place.parent.absolute())
                os.replace(path, place)

    def empty(self) -> None:
        """Delete what has waited long enough; with little room on the disk, the oldest before its time."""
        for folder in sorted(self.folder.glob("[0-9]*"), key=lambda folder: int(folder.name)):
            if int(folder.name) + HOURS < _hour() or shutil.disk_usage(self.folder).free < LITTLE:
                shutil.rmtree(folder, ignore_errors=True)


def _hour() -> int:
    return int(time.time() // HOUR)
