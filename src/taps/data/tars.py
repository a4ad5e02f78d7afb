"""Tars read in place: one of class folders, one for each class, or shards as webdataset writes them."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from taps.data.sources import Listing, list_members
from taps.errors import DataError


@dataclass(frozen=True)
class TarSource:
    """Files in one or several tars.

    It knows where the bytes of each file begin, so it reads in any order, in several threads and processes,
    and a pickled one need not look through the tars again.

    Attributes:
        paths: The tars.
        members: For each key which tar it is in, where its bytes begin, and how many there are. Folders are
            there, too, with a slash at the end.
        prefix: Keys are below this folder.
    """

    paths: tuple[Path, ...]
    members: dict[str, tuple[int, int, int]]
    prefix: str = ""

    def read(self, key: str) -> bytes:
        """The bytes of one file below the prefix."""
        if self.prefix + key not in self.members:
            raise DataError(f"{self.paths[0]} has no member {self.prefix + key}: check the data set.")
        number, start, size = self.members[self.prefix + key]
        try:
            with self.paths[number].open("rb", buffering=0) as file:
                found = os.pread(file.fileno(), size, start)
        except OSError as error:
            raise DataError(f"{self.paths[number]} cannot be read ({error.strerror or error}).") from error
        if len(found) < size:
            raise DataError(f"{self.paths[number]} is cut short at {key}: fetch it again.")
        return found

    def names(self) -> list[str]:
        """Of all members."""
        return list(self.members)

    def listing(self) -> Listing:
        """Everything below the prefix."""
        return list_members(self.members, self.prefix)


def open_tars(paths: Sequence[Path], prefix: str = "") -> TarSource:
    """One tar; or several as one, where the name of each is the uppermost folder of what it holds."""
    members: dict[str, tuple[int, int, int]] = {}
    for number, path in enumerate(paths):
        above = f"{path.stem}/" if len(paths) > 1 else ""
        for member in _headers(path):
            name = above + member.name.removeprefix("./") + ("/" if member.isdir() else "")
            if member.isfile() or member.isdir():
                members[name] = number, member.offset_data, member.size
    return TarSource(tuple(paths), members, prefix)


def _headers(path: Path) -> list[tarfile.TarInfo]:
    try:
        with tarfile.open(path, "r:") as archive:  # not compressed: those can only be read from the beginning
            return archive.getmembers()
    except (OSError, tarfile.TarError) as error:
        raise DataError(
            f"{path} cannot be opened as a tar ({error}): one that is compressed must be unpacked first, one "
            "that is cut short fetched again."
        ) from error
