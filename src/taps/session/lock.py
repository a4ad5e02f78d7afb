"""A folder that one process at a time may write to; a killed process lets go of it by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from taps.errors import StateError


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a folder, or say that somebody else does.

    Args:
        folder: Must exist.
        patience: Seconds to wait for another process to let go.
    """
    try:
        lock = FileLock(folder / ".lock").acquire(timeout=patience)
    except Timeout:
        raise StateError(
            f"Another process is writing to {folder}; wait for it, or choose another --out."
        ) from None
    with lock:
        yield
