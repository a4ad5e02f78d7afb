"""A folder that one process at a time may write to; a killed process lets go of it by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from taps.errors import StateError


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold a folder, or say that somebody else does.

    Args:
        folder: Must exist.
        patience: Seconds to wait for another process to let go.
    """
    with (folder / ".lock").open("w") as file:
        give_up = time.monotonic() + patience
        while not _take(file):
            if time.monotonic() >= give_up:
                raise StateError(
                    f"Another process is writing to {folder}; wait for it, or choose another --out."
                )
            time.sleep(0.05)
        yield


def _take(file: IO[str]) -> bool:
    with suppress(ImportError):  # systems without flock go unprotected
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
