"""Threads and memory of a process.

It imports neither torch nor numpy: their libraries read the environment when they are loaded.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
SLEEPING = {
    "OMP_WAIT_POLICY": "PASSIVE",  # GNU's OpenMP
    "KMP_BLOCKTIME": "0",  # Intel's and LLVM's
    "OPENBLAS_THREAD_TIMEOUT": "4",  # 2^4 ticks of the processor's clock; the default is 2^26
}
# Parameters of GNU's mallopt, and their values.
TRIM, TRIM_AT = -1, 1 << 29
MMAP, MMAP_FROM = -3, (1 << 28, 1 << 25)  # the second for versions that take no more
ARENAS = -8
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_others_mb = 0.0  # resident at the last `reset_peak` and no tensor: interpreter, libraries, what others left


def sleep_while_waiting() -> None:
    """Let waiting threads give their core away; call it before torch is imported. A user's settings stay."""
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
    """Environment for processes that are started in the block: so many threads each, unless the user says."""
    before = dict(os.environ)
    sleep_while_waiting()
    for name in COUNTS:
        os.environ.setdefault(name, str(threads))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def reset_peak(device: torch.device) -> None:
    """Forget the memory peak, where the system allows it: a process with several jobs measures each.

    Freed memory is given back to the system first: the allocator would keep it, and it would count.
    """
    gc.collect()
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError, AttributeError):  # only GNU's C library can be asked to
        ctypes.CDLL(None).malloc_trim(0)
    # Linux alone has this file, and containers may forbid it; the peak then includes earlier jobs.
    with suppress(OSError):
        CLEAR.write_text("5")
    global _others_mb
    _others_mb = peak_rss_mb() - tensors_mb()


def begin_run(device: torch.device) -> None:
    """A run begins: a GPU's memory counts from here."""
    if device.type == "cuda":
        reset_peak(device)


def first_image_done(device: torch.device) -> None:
    """The host's memory counts from here: what the first image loads and caches stays for later runs."""
    if device.type != "cuda":
        reset_peak(device)


def run_memory_mb(device: torch.device) -> float:
    """Highest memory of a run, whatever ran in this process before.

    On the host: the tensors after the first image, and all that came on top of them since. Interpreter,
    libraries and what earlier runs left do not count.
    """
    return peak_memory_mb(device) - (0.0 if device.type == "cuda" else _others_mb)


def tensors_mb() -> float:
    """Memory of all tensors on the host, each storage once."""
    import torch

    kinds = (torch.Tensor, torch.nn.Parameter)
    tensors = [each for each in gc.get_objects() if type(each) in kinds and each.device.type == "cpu"]
    storages = [each.untyped_storage() for each in tensors if each.layout is torch.strided]
    sizes: dict[int, int] = {each.data_ptr(): each.nbytes() for each in storages}
    return sum(sizes.values()) / 2**20


def peak_memory_mb(device: torch.device) -> float:
    """Highest memory since `reset_peak`: the GPU's own, or the process's resident memory."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device) / 2**20
    return peak_rss_mb()


def peak_rss_mb() -> float:
    """Highest resident memory of this process since `reset_peak`."""
    with suppress(OSError, ValueError, IndexError, StopIteration):
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
