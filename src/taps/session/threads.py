"""Threads: as many as there are cores, over all processes together, and none that spins while it waits.

Nothing here imports torch or numpy: their libraries read the environment once, when they are loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
SLEEPING = {
    "OMP_WAIT_POLICY": "PASSIVE",  # GNU's OpenMP
    "KMP_BLOCKTIME": "0",  # Intel's and LLVM's
    "OPENBLAS_THREAD_TIMEOUT": "4",  # 2^4 ticks of the processor's clock; 2^26 unless said otherwise
}


def sleep_while_waiting() -> None:
    """Let threads that wait give their core away, before torch is imported; a user's own settings stay."""
    for name, value in SLEEPING.items():
        os.environ.setdefault(name, value)


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
