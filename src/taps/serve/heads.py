"""How far each log goes, known outside the database: a small file for each, written in place.

Written after each commit, not fsynced: whoever kills the process does not lose it. After a power cut it may
be behind what is on record, never ahead of it. Two places in the file take turns, so one is always whole.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from taps.files import make_durable_folder, sync_file

log = logging.getLogger("taps.serve")

SIZE = 128  # bytes of one place
End = tuple[int, str]


class Heads:
    """The last acknowledged entry of each log: its number and its digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._noted: dict[str, End] = {}

    def note(self, name: str, number: int, digest: str) -> None:
        """An entry is on record. A file that cannot be written stays behind, which does no harm."""
        self._noted[name] = (number, digest)
        try:
            handle = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o640)
            try:
                ends = list(_ends(os.pread(handle, 2 * SIZE, 0)))
                newest = max((0, 1), key=lambda place: ends[place] or (-1, ""))
                os.pwrite(handle, _packed(number, digest), SIZE * (1 - newest))
            finally:
                os.close(handle)
        except OSError as error:
            log.warning(f"The end of the log {name} could not be noted in {self.folder}: {error}.")

    def sync(self, name: str) -> None:
        """What was noted is on the disk, where it can be written."""
        with suppress(OSError):
            sync_file(self.folder / name)

    def read(self, name: str) -> End | None:
        """The newest that was noted; None where none was.

        Raises:
            ValueError: The file is damaged.
        """
        try:
            data = (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        found = [end for end in _ends(data) if end is not None]
        if not found and data.strip(b"\0"):
            raise ValueError(f"The file {self.folder / name} is damaged.")
        return max(found, default=None)

    def put_back(self) -> list[Path]:
        """Write those again that were deleted; which they were."""
        lost = [name for name in list(self._noted) if not (self.folder / name).exists()]
        for name in lost:
            log.error(f"{self.folder / name} was deleted; it is written again.")
            self.note(name, *self._noted[name])
        return [self.folder / name for name in lost]

    def renew(self, ends: dict[str, End]) -> None:
        """Forget all that was noted, and note these."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._noted.clear()
        make_durable_folder(self.folder.absolute())
        for name, end in ends.items():
            self.note(name, *end)

    def remove(self, name: str) -> None:
        self._noted.pop(name, None)
        (self.folder / name).unlink(missing_ok=True)


def _packed(number: int, digest: str) -> bytes:
    said = f"{number} {digest}"
    return f"{said} {_sum(said)}\n".encode().ljust(SIZE)


def _ends(data: bytes) -> Iterator[End | None]:
    """What the two places hold; None for one that is empty or not whole."""
    for place in (data[:SIZE], data[SIZE : 2 * SIZE]):
        words = place.decode("ascii", "replace").split()
        whole = len(words) == 3 and _sum(" ".join(words[:2])) == words[2]
        yield (int(words[0]), words[1]) if whole else None


def _sum(said: str) -> str:
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()
