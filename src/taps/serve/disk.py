"""Bytes that are on the disk when the function returns: files fsynced, and the folders that name them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from taps.files import PART


def write_durably(path: Path, data: bytes) -> None:
    """A file that is there as a whole or not at all, whatever happens, and whoever else writes it."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{PART}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(part, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Names made or removed in a folder are on the disk, too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """A folder and those above it, each on the disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o750, exist_ok=True)
        sync_folder(folder.parent)
