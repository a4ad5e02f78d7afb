"""Shared by all benchmarks: a clock, test data, and a description of the machine."""

from __future__ import annotations

import itertools
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from taps.model.kernels.verify import STATE
from taps.types import PixelArray


@dataclass(frozen=True)
class Timing:
    """Milliseconds: median, quartiles, and how many runs they come from."""

    median: float
    low: float
    high: float
    runs: int


def summarise(milliseconds: Sequence[float]) -> Timing:
    """
    >>> summarise([3.0, 1.0, 2.0]).median
    2.0
    """
    low, median, high = np.percentile(milliseconds, [25, 50, 75]).tolist()
    return Timing(median, low, high, len(milliseconds))


def clock(work: Callable[[], object], device: torch.device) -> float:
    """Milliseconds until the work is done, the device's part included."""
    wait(device)
    start = time.perf_counter()
    work()
    wait(device)
    return 1e3 * (time.perf_counter() - start)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def machine(device: torch.device) -> dict[str, Any]:
    """The device and versions that a measurement was made with, and which of our kernels were used."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return {
        "device": name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        **({"kernels": dict(STATE)} if device.type == "cuda" else {}),
    }


def processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or "CPU"


def photo(height: int, width: int, seed: int = 0) -> PixelArray:
    """Smooth shapes with grain: costs a decoder and a resize what a photograph costs."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (height // 10 + 1, width // 10 + 1, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    grainy: PixelArray = np.clip(smooth + rng.integers(-12, 13, smooth.shape), 0, 255).astype(np.uint8)
    return grainy


def class_names(count: int) -> list[str]:
    """As many different class names as wanted: ImageNet's, then pairs of them.

    >>> len(set(class_names(1500)))
    1500
    """
    from taps.data.facts import imagenet_names

    names = list(dict.fromkeys(imagenet_names().values()))
    pairs = (f"{b} {a}" for a, b in itertools.product(names, names) if a != b)
    known = dict.fromkeys(names)
    while len(known) < count:
        known[next(pairs)] = None
    return list(known)[:count]
