"""Threads: as many as there are cores, over all processes together, and none that spins; memory.

Nothing here imports torch or numpy: their libraries read the environment once, when they are loaded.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
SLEEPING = {
    "OMP_WAIT_POLICY": "PASSIVE",  # GNU's OpenMP
    "KMP_BLOCKTIME": "0",  # Intel's and LLVM's
    "OPENBLAS_THREAD_TIMEOUT": "4",  # 2^4 ticks of the processor's clock; 2^26 unless said otherwise
}
# Parameters of GNU's mallopt, and what is asked for.
TRIM, TRIM_AT = -1, 1 << 29
MMAP, MMAP_FROM = -3, (1 << 28, 1 << 25)  # the second for versions that take no more
ARENAS = -8


def sleep_while_waiting() -> None:
    """Let threads that wait give their core away, before torch is imported; a user's own settings stay."""
    for name, value in SLEEPING.items():
        os.environ.setdefault(name, value)


def keep_freed_memory() -> None:
    """Let the memory of one image be used for the next one, by whichever thread; a user's own settings stay.

    GNU's C library gives large tensors back to the system, and making their pages anew takes a good part of
    an encoder's time. Up to half a gigabyte is kept instead. Other C libraries are left alone.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    with suppress(OSError, TypeError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        if any(mallopt(MMAP, size) for size in MMAP_FROM):
            mallopt(TRIM, TRIM_AT)
            mallopt(ARENAS, 1)


def threads_each(processes: int) -> int:
    """Threads of each of several processes that share the cores this one may use."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        cores = os.cpu_count() or 1
    return max(1, cores // max(1, processes))


@contextmanager
def for_children(threads: int) -> Iterator[None]:
    """Environment for processes started meanwhile: so many threads each, where the user has not said."""
    before = dict(os.environ)
    sleep_while_waiting()
    for name in COUNTS:
        os.environ.setdefault(name, str(threads))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
