"""How much memory a run needed at most."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_others_mb = 0.0  # resident at the last `reset_peak` and no tensor: interpreter, libraries, what others left


def reset_peak(device: torch.device) -> None:
    """Forget the peak so far, where the system lets us; a process that runs several jobs measures each.

    What earlier jobs used and let go of is given back to the system first: the allocator would keep it, and
    it would count for this job.
    """
    gc.collect()
    if device.type == "cuda":
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
    """A run begins: what a GPU holds counts from here."""
    if device.type == "cuda":
        reset_peak(device)


def first_image_done(device: torch.device) -> None:
    """From here the host's memory counts: what the first image loads and caches stays for later runs."""
    if device.type != "cuda":
        reset_peak(device)


def run_memory_mb(device: torch.device) -> float:
    """Highest memory of a run, whatever ran in this process before.

    On the host it is that of the tensors after the first image and of all that came on top of them since:
    the interpreter, libraries and what earlier runs left do not count.
    """
    return peak_memory_mb(device) - (0.0 if device.type == "cuda" else _others_mb)


def tensors_mb() -> float:
    """Memory of all tensors on the host, each storage once."""
    kinds = (torch.Tensor, torch.nn.Parameter)
    tensors = [each for each in gc.get_objects() if type(each) in kinds and each.device.type == "cpu"]
    storages = [each.untyped_storage() for each in tensors if each.layout is torch.strided]
    sizes: dict[int, int] = {each.data_ptr(): each.nbytes() for each in storages}
    return sum(sizes.values()) / 2**20


def peak_memory_mb(device: torch.device) -> float:
    """Highest memory since `reset_peak`: the accelerator's own, or the process's resident memory."""
    if device.type == "cuda":
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
