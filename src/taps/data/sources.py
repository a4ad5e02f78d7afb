"""Folders, zips and tars by one interface: list the files below a place, and read one of them."""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from taps import disk
from taps.errors import DataError

HEIF_SUFFIXES = {".heic", ".heif"}  # of phones
IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jfif", ".avif"}
    | (HEIF_SUFFIXES if find_spec("pillow_heif") else set())
)
ARCHIVES = (".zip", ".tar")
MAX_BYTES = 600_000_000
"""Larger files are not read: so many has an image of 100 megapixels, unpacked and with 16 bits a colour."""
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
SPLITS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing", "val", "valid", "validation"),
}
"""Names of the parts of a data set. Many public sets call the labelled part to test on `val`."""


@dataclass(frozen=True)
class Listing:
    """The files below a place.

    Attributes:
        images: Path of every image as a tuple of its parts, sorted.
        folders: Path of every folder, empty ones too, sorted.
        kinds: Number of other files by kind: an ending such as ".svg", "hidden", "without extension", "with a
            name that is not UTF-8", …
    """

    images: tuple[tuple[str, ...], ...]
    folders: tuple[tuple[str, ...], ...]
    kinds: Counter[str]


@dataclass(frozen=True)
class FolderSource:
    """Files below a folder on disk."""

    base: Path

    def read(self, key: str) -> bytes:
        return read_file(self.base / key)

    def listing(self) -> Listing:
        """Everything below the folder. Links to folders are followed, each real folder once."""
        return list_members(self._names())

    def _names(self) -> Iterator[str]:
        """Names as an archive has them: folders end with a slash; hidden folders are left out."""
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
                    f"{self.path} cannot be opened as a zip ({error}): it may be cut short; fetch it again."
                ) from error
        return self._open[process]

    def read(self, key: str) -> bytes:
        try:
            return read_member(self.archive(), self.prefix + key)
        except KeyError as error:
            raise DataError(f"{self.path} has no member {self.prefix + key}: check the data set.") from error
        except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, EOFError) as error:
            raise DataError(f"{self.path}, member {self.prefix + key} cannot be read: {error}.") from error

    def names(self) -> list[str]:
        """Names of all members; those of folders end with a slash."""
        return self.archive().namelist()

    def listing(self) -> Listing:
        return list_members(self.names(), self.prefix)


@dataclass(frozen=True)
class TarSource:
    """Files in one or several tars.

    The place of each file's bytes is known, so files are read in any order, in several threads and processes,
    and a pickled source need not scan the tars again.

    Attributes:
        paths: The tars.
        members: For each key the number of its tar, the offset of its bytes, and how many there are. Keys of
            folders end with a slash.
        prefix: Keys are below this folder.
    """

    paths: tuple[Path, ...]
    members: dict[str, tuple[int, int, int]]
    prefix: str = ""

    def read(self, key: str) -> bytes:
        if self.prefix + key not in self.members:
            raise DataError(f"{self.paths[0]} has no member {self.prefix + key}: check the data set.")
        number, start, size = self.members[self.prefix + key]
        check_bytes(size, f"{self.paths[number]}, member {self.prefix + key}")
        try:
            with self.paths[number].open("rb", buffering=0) as file:
                content = os.pread(file.fileno(), size, start)
        except OSError as error:
            raise DataError(f"{self.paths[number]} cannot be read ({error.strerror or error}).") from error
        if len(content) < size:
            raise DataError(f"{self.paths[number]} is cut short at {key}: fetch it again.")
        return content

    def names(self) -> list[str]:
        return list(self.members)

    def listing(self) -> Listing:
        return list_members(self.members, self.prefix)


def read_file(path: Path) -> bytes:
    """A regular file; a `DataError` where it is none, too large for an image, or cannot be read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe may never end
            raise DataError(f"{path} is no regular file: remove it from the data set.")
        check_bytes(found.st_size, str(path))
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read ({reason}): check the data set.") from error


def check_bytes(size: int, name: str) -> None:
    """Refuse a file that is larger than any image, before it is read."""
    if size > MAX_BYTES:
        raise DataError(f"{name} has {size:,} bytes, more than any image of up to 100 megapixels: remove it.")


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member of a zip, of no more bytes than its header says, and those no more than an image has."""
    member = archive.getinfo(name)
    check_bytes(member.file_size, f"{archive.filename}, member {name}")
    if member.compress_type not in PACKED:  # of others, Python unpacks all before it counts
        raise DataError(f"{archive.filename}, member {name} is not packed by deflate: pack it again.")
    with archive.open(member) as file:
        return b"".join(iter(partial(file.read, member.file_size), b""))


def unpack(path: Path, place: Path) -> None:
    """Unpack a zip, unless it is small and claims to hold very much."""
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
        if size > MAX_BYTES + path.stat().st_size:
            raise DataError(f"{path} would unpack to {size:,} bytes: unpack it yourself if that is right.")
        if any(member.compress_type not in PACKED for member in archive.infolist()):
            raise DataError(f"{path} is not packed by deflate: pack it again.")
        disk.extract(archive, place)


def open_tars(paths: Sequence[Path], prefix: str = "") -> TarSource:
    """One tar; or several as one, where the name of each is the uppermost folder of its files."""
    members: dict[str, tuple[int, int, int]] = {}
    for number, path in enumerate(paths):
        above = f"{path.stem}/" if len(paths) > 1 else ""
        try:
            with tarfile.open(path, "r:") as archive:  # compressed ones can only be read from the beginning
                headers = archive.getmembers()
        except (OSError, tarfile.TarError) as error:
            raise DataError(
                f"{path} cannot be opened as a tar ({error}): unpack it first if it is compressed, fetch it "
                "again if it is cut short."
            ) from error
        for member in headers:
            if member.isfile() or member.isdir():
                name = above + member.name.removeprefix("./") + ("/" if member.isdir() else "")
                members[name] = number, member.offset_data, member.size
    return TarSource(tuple(paths), members, prefix)


def open_source(path: Path, split: str = "test") -> FolderSource | ZipSource | TarSource:
    """The source at a path: a folder, a folder of tars, an archive, or a folder inside one."""
    if path.is_dir():
        tars = find_tars(path, split)
        return open_tars(tars) if tars else FolderSource(path)
    found = split_archive(path)
    if found is None:
        raise DataError(f"{path} is neither a folder nor a zip or a tar: check the path.")
    archive, inside = found
    prefix = "".join(f"{part}/" for part in inside)
    zipped = archive.suffix.lower() == ".zip"
    source = ZipSource(archive, prefix) if zipped else open_tars([archive], prefix)
    if inside and not any(name.startswith(prefix) for name in source.names()):
        tops = sorted({name.split("/")[0] for name in source.names() if "/" in name})
        raise DataError(f"{archive} has no folder {'/'.join(inside)}, only {', '.join(tops[:8]) or 'files'}.")
    return source


def find_tars(path: Path, split: str) -> list[Path]:
    """The tars in a folder, or in the folder of the split below it."""
    return next(filter(None, map(_tars_in, (path, *(path / name for name in SPLITS[split])))), [])


def _tars_in(folder: Path) -> list[Path]:
    """The tars of a folder, unless folders or images lie beside them: then those are the data set."""
    children = sorted(folder.iterdir()) if folder.is_dir() else []
    others = (is_image(child.name) or (child.is_dir() and not is_hidden(child.name)) for child in children)
    found = [child for child in children if child.suffix.lower() == ".tar" and not is_hidden(child.name)]
    return [] if not found or any(others) else found


def list_members(names: Iterable[str], prefix: str = "") -> Listing:
    """The files below a prefix, from the names of an archive's members."""
    images: set[tuple[str, ...]] = set()
    folders: set[tuple[str, ...]] = set()
    kinds: Counter[str] = Counter()
    for member in names:
        if not member.startswith(prefix) or member == prefix:
            continue
        parts = PurePosixPath(member[len(prefix) :]).parts
        is_folder = member.endswith("/")
        if "/".join(parts) != member[len(prefix) :].removesuffix("/") or ".." in parts:
            kinds["with a path such as /a, ./a, a//b or a/../b"] += not is_folder
            continue
        if any(is_hidden(part) for part in parts):
            kinds["hidden"] += not is_folder
            continue
        # A name with bytes that are not UTF-8 has surrogates; no file of results could hold it.
        if not member.isascii() and member.encode(errors="ignore").decode() != member:
            kinds["with a name that is not UTF-8"] += not is_folder
            continue
        above = parts if is_folder else parts[:-1]
        folders.update(above[:depth] for depth in range(1, len(above) + 1))
        if not is_folder and is_image(parts[-1]):
            kinds["under a name used twice"] += parts in images
            images.add(parts)
        elif not is_folder:
            kinds[os.path.splitext(parts[-1])[1].lower() or "without extension"] += 1
    return Listing(tuple(sorted(images)), tuple(sorted(folders)), +kinds)


def is_image(name: str) -> bool:
    """
    >>> is_image("dog.JPEG"), is_image("._dog.jpg"), is_image("labels.txt")
    (True, False, False)
    """
    return not is_hidden(name) and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def is_hidden(name: str) -> bool:
    return name.startswith(".") or name in {"__MACOSX", "Thumbs.db", "desktop.ini", "@eaDir"}


def kinds_text(kinds: Mapping[str, int]) -> str:
    """Numbers of files by kind, for a sentence.

    >>> kinds_text({".svg": 3, ".heic": 1200})
    '1,200 .heic (pip install pillow-heif to read them), 3 .svg'
    """
    hints = dict.fromkeys(HEIF_SUFFIXES, " (pip install pillow-heif to read them)")
    counted = sorted((kind, count) for kind, count in kinds.items() if count)
    return ", ".join(f"{count:,} {kind}{hints.get(kind, '')}" for kind, count in counted)


def split_archive(path: Path) -> tuple[Path, tuple[str, ...]] | None:
    """The archive that a path leads to or into, and the folders inside it; None where there is none."""
    for depth, place in enumerate([path, *path.parents]):
        if place.suffix.lower() in ARCHIVES and os.path.isfile(place):
            return place, path.parts[len(path.parts) - depth :]
    return None
