"""Everything that is written, moved or removed on the disk: nothing of the user's is ever touched.

A folder is *ours* where it holds our marker, which `claim` puts into one that is new or empty. Files are
replaced, moved and removed below such folders alone. Elsewhere a file is written under a name that is free,
or over a file that is known to be ours: by its checksum, a table's columns, or a list of what was written.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from taps.errors import DataError, StateError

PART = ".part"  # a file that is being written
MARKER = ".taps"
STORE = ("identity", "identity.new")  # the marker of a service's store, and that of one which begins
SMALL = 64  # bytes it has at most; other programs have larger files of this name
NOTE = "TAPS made this folder. It replaces and removes files here that it wrote itself.\n"
_temporary: set[Path] = set()  # folders that this process made for itself


def claim(folder: Path, known: Callable[[Path], bool] = lambda folder: False) -> None:
    """Make a folder ours, and check that it is writable before any work is done.

    Args:
        folder: New, empty, or of an earlier run.
        known: As that of `check_free`.
    """
    check_free(folder, known)
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if _is_marked(folder) and folder not in _temporary:
            with tempfile.TemporaryFile(dir=folder):  # is it writable?
                pass
        else:
            (folder / MARKER).write_text(NOTE, encoding="utf-8")


def check_free(folder: Path, known: Callable[[Path], bool] = lambda folder: False) -> None:
    """Refuse a folder that has files and is not ours.

    Args:
        folder: Where much will be written.
        known: Whether an older version made the folder, which put no marker into it.
    """
    if not os.path.lexists(folder) or _is_marked(folder):
        return
    if not folder.is_dir():
        raise DataError(f"{folder} is a file; choose another --out.")
    with _writable(folder):
        others = [path.name for path in folder.iterdir()]
        if MARKER in others and NOTE.startswith(_note_of(folder)):
            others.remove(MARKER)  # cut off by a kill, or being written by another process
        if others and (MARKER in others or not known(folder)):
            raise DataError(
                f"{folder} has other files, which stay as they are; choose a new or empty folder."
            )


def is_ours(path: Path) -> bool:
    """Whether a path is in a folder of ours."""
    return any(_is_marked(parent) for parent in path.absolute().parents)


def _own(path: Path) -> Path:
    """A path in a folder of ours. Another one is a mistake of this program, and is refused."""
    if not is_ours(path):
        raise StateError(f"{path} is not in a folder that TAPS made; it is left as it is.")
    return path


def make_folder(folder: Path) -> None:
    """Make a folder that may be there already, and its parents."""
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)


def make_durable_folder(folder: Path) -> None:
    """Make a folder and its parents, each synced to the disk."""
    if not folder.is_dir():
        make_durable_folder(folder.parent)
        folder.mkdir(mode=0o750, exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder of this process alone, removed at the end."""
    folder = make_temporary()
    try:
        yield folder
    finally:
        remove_tree(folder)


def extract(archive: zipfile.ZipFile, folder: Path) -> None:
    """Unpack a zip into a temporary folder."""
    if folder not in _temporary:
        raise StateError(f"{folder} is no temporary folder; {archive.filename} is not unpacked.")
    archive.extractall(folder)


def make_temporary() -> Path:
    """A folder of this process alone, which `remove_tree` removes."""
    folder = Path(tempfile.mkdtemp(prefix="taps-"))
    _temporary.add(folder)
    return folder


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which then gets its name: it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{uuid.uuid4().hex}{PART}")
    part.mkdir()
    _temporary.add(part)
    try:
        yield part
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        part.rename(path)
    finally:
        remove_tree(part)


def remove(path: Path) -> None:
    """Remove a file in a folder of ours, where it is there."""
    _own(path).unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a folder or a file in a folder of ours, or a temporary folder; what cannot be removed stays."""
    if path in _temporary or _own(path).is_dir():
        shutil.rmtree(path, ignore_errors=True)
        _temporary.discard(path)
    else:
        path.unlink(missing_ok=True)


def dissolve(folder: Path, *patterns: str) -> None:
    """Remove the files of these names from a folder of ours; and the folder, where it has no others."""
    for pattern in (*patterns, MARKER):
        for path in folder.glob(pattern):
            remove(path)
    remove_empty(folder)


def remove_empty(folder: Path) -> None:
    """Remove a folder that has nothing in it."""
    with suppress(OSError):
        folder.rmdir()


def empty_again(folder: Path, *, keep: bool) -> None:
    """Remove all from a folder that was empty before this process filled it; with `keep` it stays itself."""
    if _is_marked(folder):
        shutil.rmtree(folder, ignore_errors=True)
    remove_empty(folder)
    if keep:
        folder.mkdir(exist_ok=True)


def copy_tree(folder: Path, to: Path, *without: str) -> None:
    """Copy a folder into one of ours, without the files of some names."""
    shutil.copytree(folder, _own(to), ignore=shutil.ignore_patterns(*without), dirs_exist_ok=True)


def move(path: Path, to: Path) -> None:
    """Rename a file or folder within folders of ours; what has the name is replaced."""
    os.replace(_own(path), _own(to))


def check_free_or(path: Path, mine: Callable[[Path], bool]) -> None:
    """Refuse a path where something is that is neither in a folder of ours nor, for the caller, ours."""
    if os.path.lexists(path) and not is_ours(path) and not mine(path):
        raise StateError(f"{path} exists, and TAPS did not write it; choose another name, or remove it.")


@contextmanager
def whole_file(
    path: Path, mine: Callable[[Path], bool] = lambda path: False, *, mark: str = "", mode: int = 0o666
) -> Iterator[Path]:
    """A temporary file to fill; once its bytes are on the disk it gets its name.

    Args:
        path: The name; a file that has it already is replaced if it is ours.
        mine: Whether a file outside of our folders is ours.
        mark: Tells apart the names of several processes that write the same file at one time.
        mode: Its permissions, as far as the user's umask allows them.
    """
    ours = is_ours(path)
    check_free_or(path, mine)
    # Outside of our folders any name but a new one may be somebody's.
    part = path.with_name(f"{path.name}{mark}{PART}" if ours else f".{uuid.uuid4().hex}{PART}")
    if ours:
        part.unlink(missing_ok=True)  # left by a process that was killed
    part.touch(mode, exist_ok=False)
    try:
        yield part
        sync_file(part)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)  # frees the space on a full disk
        raise


def write_part(part: Path, *pieces: bytes | memoryview) -> None:
    """Fill a temporary file."""
    with part.open("r+b") as file:
        for piece in pieces:
            file.write(piece)


def open_for_lines(path: Path) -> BinaryIO:
    """Open a file that grows: a new one, or one in a folder of ours that is no link."""
    if os.path.lexists(path) and (path.is_symlink() or not is_ours(path)):
        raise StateError(f"{path} exists, and TAPS did not write it; choose another folder, or remove it.")
    return path.open("ab+")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in a folder of ours."""
    _own(path).write_bytes(data)


@contextmanager
def open_array(path: Path) -> Iterator[BinaryIO]:
    """Open a file of numbers in a folder of ours to write anywhere in it; in the end it is on the disk."""
    with open(_own(path), "r+b" if path.exists() else "w+b") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Sync a file's bytes to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the names made or removed in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def free_name(folder: Path, name: str) -> Path:
    """A path of this name that nothing has yet: "cat.png", else "cat (2).png", …"""
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    path, number = folder / name, 1
    while os.path.lexists(path):
        number += 1
        path = folder / f"{stem} ({number}){dot}{suffix}"
    return path


@contextmanager
def new_file(path: Path, then: Callable[[], object] = lambda: None) -> Iterator[Path]:
    """A temporary file to fill, removed where that fails; then it gets its name, which must be free.

    `then` is called when the file is whole, before it gets its name.
    """
    part = path.with_name(f".{uuid.uuid4().hex}{PART}")
    part.touch(exist_ok=False)  # with the permissions of other files
    try:
        yield part
        then()
        _rename_new(part, path)
    finally:
        part.unlink(missing_ok=True)


def _rename_new(path: Path, to: Path) -> None:
    """Give a file a name that must be free: in one step, where the file system has hard links."""
    try:
        os.link(path, to, follow_symlinks=False)
    except (OSError, NotImplementedError):
        if os.path.lexists(to):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(to)) from None
        os.rename(path, to)


def add_copy(
    path: Path,
    data: bytes,
    of: Path | None = None,
    then: Callable[[], object] = lambda: None,
    *,
    link: bool = False,
) -> None:
    """Write a new file, with the times and permissions of another, or link to that.

    `then` is called as by `new_file`.
    """
    with new_file(path, then) as part:
        if link and of is not None:
            part.unlink()
            part.symlink_to(of)
            return
        part.write_bytes(data)
        if of is not None:
            shutil.copystat(of, part)


def add_lines(path: Path, head: bytes, lines: bytes) -> None:
    """Add lines to a table, which begins with `head`; a last line that was cut off is ended."""
    if not os.path.lexists(path):
        add_copy(path, head)
    with path.open("ab+") as file:
        if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
            lines = b"\n" + lines
        file.write(lines)


def check_table(path: Path, head: re.Pattern[str]) -> bool:
    """Whether a table has lines already; one whose first line is not `head` is refused."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); choose another --out.") from error
    if first and not head.fullmatch(first.rstrip("\r\n")):
        raise DataError(f"{path} exists and has other columns; choose another --out.")
    return bool(first)


def open_table(path: Path, head: re.Pattern[str], *, keep: bool = False) -> TextIO:
    """Open a table for lines, a new one or one of ours; with `keep` its lines stay."""
    check_table(path, head)
    try:
        return path.open("a" if keep else "w", newline="", encoding="utf-8", buffering=1)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); choose another --out.") from error


def mark_of(path: Path) -> tuple[str, str] | None:
    """Size and SHA-256 of a file, or of where a link leads; None where there is neither."""
    try:
        data = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    except OSError:
        return None
    return str(len(data)), hashlib.sha256(data).hexdigest()


def remove_known(path: Path, mine: Callable[[Path], bool]) -> None:
    """Remove a file outside of our folders, if it is as we wrote it."""
    if mine(path):
        path.unlink()


def _note_of(folder: Path) -> str:
    """What the marker in a folder says; nothing where there is none."""
    with suppress(OSError, UnicodeDecodeError):
        return (folder / MARKER).read_text("utf-8")
    return ""


def _is_marked(folder: Path) -> bool:
    if folder in _temporary:
        return True
    if _note_of(folder) == NOTE:
        return True
    marks = (folder / name for name in STORE)
    return any(mark.is_file() and mark.stat().st_size <= SMALL for mark in marks)


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(f"{folder} cannot be written ({error.strerror}); choose another place.") from error
