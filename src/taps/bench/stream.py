"""`taps bench stream` and `taps bench views`: from JPEG bytes to predictions, and from pixels to views."""

from __future__ import annotations

import time
from typing import Any

import torch

from taps.bench.measure import clock, jpeg, photo, summarise
from taps.bench.step import IMAGE, keep_busy
from taps.images.decode import load_image
from taps.images.prefetch import prefetch
from taps.images.views import BACKENDS, make_views, sample_generator
from taps.learner import Learner
from taps.stream.peak import peak_memory_mb, reset_peak

WARM = 3


def measure_stream(learner: Learner, images: int, *, threads: int = 2) -> dict[str, Any]:
    """Run a stream of JPEG files through `predict_one`, every question answered at once.

    Args:
        learner: Fresh.
        images: How many are timed.
        threads: That decode ahead; 0 to decode in turn.
    """
    files = [jpeg(photo(*IMAGE, seed=seed)) for seed in range(8)]
    stream = [files[index % len(files)] for index in range(images + WARM)]
    times: list[float] = []
    reset_peak(learner.clip.device)
    sources = prefetch(stream, load_image, threads=threads) if threads else None
    last = time.perf_counter()
    for index, file in enumerate(stream):
        prediction = learner.predict_one(file if sources is None else next(sources).result())
        if prediction.ask:
            learner.learn_one(prediction.id, index % len(learner.classes))
        now = time.perf_counter()
        times.append(1e3 * (now - last))
        last = now
    timed = times[WARM:]
    return {
        "images": images,
        "shape": list(IMAGE),
        "decoding_threads": threads,
        "ms": vars(summarise(timed)),
        "images_per_second": 1e3 * len(timed) / sum(timed),
        "asked": learner.asked,
        "peak_mib": peak_memory_mb(learner.clip.device),
    }


def measure_views(
    device: torch.device,
    *,
    shape: tuple[int, int] = (375, 500),
    size: int = 224,
    views: int = 64,
    repeats: int = 15,
) -> dict[str, Any]:
    """Milliseconds from a decoded image to views on the device, either backend; they alternate."""
    image = photo(*shape)

    def make(backend: str, step: int) -> object:
        generator = sample_generator(0, step)
        return make_views(image, views=views, size=size, generator=generator, device=device, backend=backend)

    times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for step in range(WARM + repeats):
        for backend in BACKENDS:
            if backend == "tensor":  # Pillow left the GPU idle
                keep_busy(device, 0.02)
            times[backend].append(clock(lambda backend=backend, step=step: make(backend, step), device))  # type: ignore[misc]
    timings = {backend: vars(summarise(values[WARM:])) for backend, values in times.items()}
    return {"shape": list(shape), "size": size, "views": views, "ms": timings}
