"""One thread for numpy's products: threads of its own would fight for the cores with torch's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock

import numpy as np

# The OpenBLAS of numpy's wheels lies in one of these folders and has its functions under one of these names.
FOLDERS = ("../numpy.libs", ".dylibs", ".libs")
NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")
_lock = Lock()
_inside = _before = 0


@cache
def openblas() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """What tells and sets how many threads numpy's OpenBLAS uses; None where numpy has another library."""
    folder = Path(np.__file__).parent
    for path in [file for name in FOLDERS for file in sorted((folder / name).glob("*openblas*"))]:
        library = ctypes.CDLL(str(path))
        for name in NAMES:
            if hasattr(library, name.format("get")):
                return library[name.format("get")], library[name.format("set")]
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for numpy's products inside; as many as before when the last one has left.

    The head's products are small: shared among threads they take longer, and after a product these threads
    wait for the next one at full speed, on the cores that torch wants. Several threads of Python may be
    inside at a time.
    """
    global _inside, _before
    found = openblas()
    if found is None:
        yield
        return
    get, put = found
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = get()
            put(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                put(_before)
