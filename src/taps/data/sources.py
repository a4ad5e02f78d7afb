"""Folders and archives by one interface: list the files below a place, and read one of them."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from taps.errors import DataError

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jfif", ".avif"}
)
HEIF_SUFFIXES = frozenset({".heic", ".heif"})
"""What phones write; images where the extra `heif` is installed."""
ARCHIVES = (".zip", ".tar")


@dataclass(frozen=True)
class Listing:
    """What lies below a place: image files and folders as tuples of path parts, sorted.

    Attributes:
        images: Path of every image.
        folders: Path of every folder, empty ones too.
        kinds: How many other files there are of each kind: an ending such as ".svg", "hidden" (those of the
            file manager too), "without extension" or "with a name that is not UTF-8".
    """

    images: tuple[tuple[str, ...], ...]
    folders: tuple[tuple[str, ...], ...]
    kinds: Counter[str]

    @property
    def skipped(self) -> int:
        """How many other files there are."""
        return self.kinds.total()


@dataclass(frozen=True)
class FolderSource:
    """Files below a folder on disk."""

    base: Path

    def read(self, key: str) -> bytes:
        """The bytes of one file below the folder."""
        try:
            return (self.base / key).read_bytes()
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"{self.base / key} cannot be read ({reason}): check the data set.") from error

    def listing(self) -> Listing:
        """Everything below the folder. Links to folders are followed, each real folder once."""
        return list_members(self._names())

    def _names(self) -> Iterator[str]:
        """As an archive would have them: folders with a slash at the end, hidden ones left out."""
        seen: set[str] = set()
        for where, below, files in os.walk(self.base, followlinks=True):
            real = os.path.realpath(where)
            below[:] = [] if real in seen else [name for name in below if not is_hidden(name)]
            if real not in seen:
                seen.add(real)
                above = "".join(f"{part}/" for part in Path(where).relative_to(self.base).parts)
                yield from (above + name for name in files)
                yield from (f"{above}{name}/" for name in below)


@dataclass(frozen=True)
class ZipSource:
    """Files below a prefix in a zip, read without unpacking.

    An open zip keeps one position in its file, which a forked process would share; so each process opens its
    own at the first read, and a pickled source travels without any.
    """

    path: Path
    prefix: str = ""
    _open: dict[int, zipfile.ZipFile] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "prefix": self.prefix, "_open": {}}

    def archive(self) -> zipfile.ZipFile:
        """This process's own handle."""
        process = os.getpid()
        if process not in self._open:
            try:
                self._open[process] = zipfile.ZipFile(self.path)
            except (OSError, zipfile.BadZipFile) as error:
                raise DataError(
                    f"{self.path} cannot be opened as a zip ({error}): it may be cut short, fetch it again."
                ) from error
        return self._open[process]

    def read(self, key: str) -> bytes:
        """The bytes of one member below the prefix."""
        try:
            return self.archive().read(self.prefix + key)
        except KeyError as error:
            raise DataError(f"{self.path} has no member {self.prefix + key}: check the data set.") from error
        except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, EOFError) as error:
            raise DataError(f"{self.path}, member {self.prefix + key} cannot be read: {error}.") from error

    def names(self) -> list[str]:
        """Of all members, those of folders with a slash at the end."""
        return self.archive().namelist()

    def listing(self) -> Listing:
        """Everything below the prefix."""
        return list_members(self.names(), self.prefix)


def list_members(names: Iterable[str], prefix: str = "") -> Listing:
    """What an archive holds below a prefix, from the names of its members."""
    images: set[tuple[str, ...]] = set()
    folders: set[tuple[str, ...]] = set()
    kinds: Counter[str] = Counter()
    for member in names:
        if not member.startswith(prefix) or member == prefix:
            continue
        parts = PurePosixPath(member[len(prefix) :]).parts
        is_folder = member.endswith("/")
        if any(is_hidden(part) for part in parts):
            kinds["hidden"] += not is_folder
            continue
        if not _is_unicode(member):  # no file of results could name it
            kinds["with a name that is not UTF-8"] += not is_folder
            continue
        above = parts if is_folder else parts[:-1]
        folders.update(above[:depth] for depth in range(1, len(above) + 1))
        if not is_folder and is_image(parts[-1]):
            images.add(parts)
        elif not is_folder:
            kinds[kind_of(parts[-1])] += 1
    return Listing(tuple(sorted(images)), tuple(sorted(folders)), +kinds)


def is_image(name: str) -> bool:
    """Whether a file name is that of an image a data set would hold.

    >>> is_image("dog.JPEG"), is_image("._dog.jpg"), is_image("labels.txt")
    (True, False, False)
    """
    ending = os.path.splitext(name)[1].lower()
    return not is_hidden(name) and (ending in IMAGE_SUFFIXES or (ending in HEIF_SUFFIXES and _reads_heif()))


def _reads_heif() -> bool:
    return find_spec("pillow_heif") is not None


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def told(kinds: Mapping[str, int]) -> str:
    """The files of each kind for a sentence.

    >>> told({".svg": 3, ".heic": 1200})
    '1,200 .heic (pip install pillow-heif to read them), 3 .svg'
    """
    hints = dict.fromkeys(HEIF_SUFFIXES, " (pip install pillow-heif to read them)")
    counted = sorted((kind, count) for kind, count in kinds.items() if count)
    return ", ".join(f"{count:,} {kind}{hints.get(kind, '')}" for kind, count in counted)


def kind_of(name: str) -> str:
    """What a file that is no image is counted as.

    >>> kind_of("logo.SVG"), kind_of("README"), kind_of(".DS_Store")
    ('.svg', 'without extension', 'hidden')
    """
    return "hidden" if is_hidden(name) else os.path.splitext(name)[1].lower() or "without extension"


def split_archive(path: Path) -> tuple[Path, tuple[str, ...]] | None:
    """The archive that a path leads to or into, and the folders inside it; None where there is none."""
    for depth, place in enumerate([path, *path.parents]):
        if place.suffix.lower() in ARCHIVES and place.is_file():
            return place, path.parts[len(path.parts) - depth :]
    return None


def is_hidden(name: str) -> bool:
    return name.startswith(".") or name in {"__MACOSX", "Thumbs.db", "desktop.ini", "@eaDir"}
