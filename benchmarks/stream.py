"""From JPEG bytes to predictions."""

from __future__ import annotations

import io
import time
from typing import Any

from PIL import Image

from taps.bench.measure import photo, summarise
from taps.bench.step import IMAGE
from taps.images.decode import load_image
from taps.images.prefetch import prefetch
from taps.learner import Learner
from taps.session.process import peak_memory_mb, reset_peak
from taps.types import PixelArray

WARM = 3


def jpeg(image: PixelArray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=90)
    return file.getvalue()


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
