"""Time to make the views of one decoded image: Pillow against tensors.

    python benchmarks/views.py
    python benchmarks/views.py --json --views 64 --images 375x500,1200x1600 --sizes 224

One CPU thread, and CUDA where there is one. The two ways alternate in one process; figures are medians in
milliseconds from decoded pixels to views that are ready on the device, fresh crops each time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from PIL import Image

from taps.images.views import make_views, sample_generator
from taps.types import PixelArray

IMAGES = ((64, 64), (375, 500), (1200, 1600))
SIZES = (64, 224)


@dataclass(frozen=True)
class ViewTiming:
    """Medians and quartiles over the rounds, and how far the two ways lie apart."""

    device: str
    height: int
    width: int
    size: int
    views: int
    pillow_ms: float
    tensor_ms: float
    tensor_ms_quartiles: tuple[float, float]
    speedup: float
    mean_difference: float
    max_difference: int


def synthetic_photo(height: int, width: int, seed: int = 0) -> PixelArray:
    """Smooth shapes with grain, so that differences in filtering show."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (height // 10 + 1, width // 10 + 1, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    return np.clip(smooth + rng.integers(-20, 21, smooth.shape), 0, 255).astype(np.uint8)


def measure_views(
    images: Sequence[tuple[int, int]] = IMAGES,
    sizes: Sequence[int] = SIZES,
    *,
    views: int = 64,
    rounds: int = 15,
    device: str = "cpu",
) -> list[ViewTiming]:
    """Measure both backends for every image shape and view size."""
    return [
        _measure(synthetic_photo(*shape), size, views, rounds, torch.device(device))
        for shape in images
        for size in sizes
    ]


def _measure(image: PixelArray, size: int, views: int, rounds: int, device: torch.device) -> ViewTiming:
    def make(backend: str, step: int) -> torch.Tensor:
        generator = sample_generator(0, step)
        return make_views(image, views=views, size=size, generator=generator, device=device, backend=backend)

    off = (make("pillow", 0).int() - make("tensor", 0).int()).abs()
    make("tensor", 1)
    pillow, tensor = [], []
    for step in range(rounds):
        pillow.append(_milliseconds(lambda step=step: make("pillow", step), device))
        tensor.append(_milliseconds(lambda step=step: make("tensor", step), device))
    low, middle, high = np.percentile(tensor, [25, 50, 75]).tolist()
    return ViewTiming(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device}, 1 thread",
        height=image.shape[0],
        width=image.shape[1],
        size=size,
        views=views,
        pillow_ms=float(np.median(pillow)),
        tensor_ms=middle,
        tensor_ms_quartiles=(low, high),
        speedup=float(np.median(pillow)) / middle,
        mean_difference=float(off.double().mean()),
        max_difference=int(off.max()),
    )


def _milliseconds(work: Callable[[], object], device: torch.device) -> float:
    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    wait()
    start = time.perf_counter()
    work()
    wait()
    return 1e3 * (time.perf_counter() - start)


def _shapes(text: str) -> list[tuple[int, int]]:
    return [(int(height), int(width)) for height, width in (each.split("x") for each in text.split(","))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--images", type=_shapes, default=IMAGES, help="heights and widths: 375x500,1200x1600"
    )
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=SIZES)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()

    torch.set_num_threads(1)
    timings = [
        timing
        for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        for timing in measure_views(
            options.images, options.sizes, views=options.views, rounds=options.rounds, device=device
        )
    ]
    if options.json:
        print(json.dumps([asdict(timing) for timing in timings], indent=2))
        return
    titles = f"{'device':<16}{'image':>12}{'view':>6}{'Pillow ms':>12}{'tensor ms':>12}"
    print(titles + f"{'ratio':>8}{'mean off':>10}{'max':>5}")
    for t in timings:
        print(
            f"{t.device:<16}{f'{t.height}×{t.width}':>12}{t.size:>6}{t.pillow_ms:>12.2f}{t.tensor_ms:>12.2f}"
            f"{t.speedup:>8.1f}{t.mean_difference:>10.4f}{t.max_difference:>5}"
        )


if __name__ == "__main__":
    main()
