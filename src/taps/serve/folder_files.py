"""The files of a folder that is labelled, as they are now: deleted and replaced ones are noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from taps.data import Dataset
from taps.errors import DataError, ImageError
from taps.streams.row import Row
from taps.streams.sorting import place_of

GONE = ""  # the digest of a file that is no more
Stat = tuple[int, int, int]


class FolderFiles:
    """Reads the images of a data set in an order, and knows the digest of each that was read.

    Args:
        dataset: The images.
        order: Indices into it.
        name: The name of an image on record, from its place in the order.
    """

    def __init__(self, dataset: Dataset, order: Sequence[int], name: Callable[[int], str]) -> None:
        self.dataset, self.order, self.name = dataset, order, name
        self._digests: dict[str, str] = {}  # SHA-256 by name
        self._stats: dict[str, Stat | None] = {}

    def read(self, t: int) -> bytes:
        """The bytes of image `t`; until it is read again, they are what its name stands for."""
        name = self.name(t)
        self._stats[name] = self._stat(t)
        try:
            data = self.dataset.read(self.order[t])
        except BaseException:
            self._digests[name] = GONE
            raise
        self._digests[name] = hashlib.sha256(data).hexdigest()
        return data

    def look(self, rows: Iterable[Row]) -> None:
        """Read the images that are on record, unless they were read and their files are as they were then."""
        names, there = {row.name for row in rows}, set()
        for t in range(len(self.order)):
            there.add(name := self.name(t))
            if name in names and (name not in self._digests or self._stat(t) != self._stats[name]):
                with suppress(DataError, ImageError, OSError):
                    self.read(t)
        self._digests |= dict.fromkeys(names - there, GONE)

    @property
    def gone(self) -> set[str]:
        """Names of images that were on record or read, and can be read no more."""
        return {name for name, digest in list(self._digests.items()) if digest == GONE}

    def is_gone(self, row: Row) -> bool:
        """Whether there is no file any more of the name of a row."""
        return self._digests.get(row.name) == GONE

    def is_replaced(self, row: Row) -> bool:
        """Whether the file of the name of a row is another picture now."""
        return self._digests.get(row.name, row.image) not in (GONE, row.image)

    def _stat(self, t: int) -> Stat | None:
        """What differs when a file was written anew; None for a file in an archive."""
        place = place_of(self.dataset, self.dataset.samples[self.order[t]].path)
        with suppress(OSError):
            if place is not None:
                found = place.stat()
                return found.st_size, found.st_mtime_ns, found.st_ino
        return None
