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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from taps.errors import DataError

PART = ".part"  # a file that is being written
MARKER = ".taps"
STORE = "identity"  # the marker of a service's store
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
        if _is_marked(folder):
            with tempfile.TemporaryFile(dir=folder):  # is it writable?
                pass
        else:
            with (folder / MARKER).open("x", encoding="utf-8") as file:
                file.write(NOTE)


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
        if any(folder.iterdir()) and not known(folder):
            raise DataError(
                f"{folder} has other files, which stay as they are; choose a new or empty folder for --out."
            )


def is_ours(path: Path) -> bool:
    """Whether a path is in a folder of ours."""
    return any(_is_marked(parent) for parent in path.absolute().parents)


def make_folder(folder: Path) -> None:
    """Make a folder that may be there already, and its parents."""
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True)


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


def remove_copy(path: Path, mark: tuple[str, str]) -> None:
    """Remove a file outside of our folders that we wrote, if it is as it was written."""
    if mark_of(path) == mark:
        path.unlink()


def _is_marked(folder: Path) -> bool:
    if folder in _temporary or (folder / STORE).is_file():
        return True
    with suppress(OSError, UnicodeDecodeError):
        return (folder / MARKER).read_text("utf-8") == NOTE
    return False


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{folder} cannot be written ({error.strerror}); choose another --out.") from error
