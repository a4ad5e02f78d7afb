"""What `taps predict` and the default method cost on a CPU beside the bare encoder.

    python benchmarks/cpu_ratio.py --model pocket --images 16 --views 4

CPU seconds of one process on one thread, not wall time: other work on the machine hardly changes them. The
bare encoder gets pixels that are ready, as many views as the other side encodes. A ratio of 0.9 says that a
tenth of the time goes into everything else: decoding, views, the head, and learning from answers.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image

from taps import load_clip
from taps.bench.measure import photo
from taps.clip import Clip
from taps.images.decode import load_image
from taps.images.views import make_views, sample_generator
from taps.learner import Learner
from taps.session.predict import predict_all, zero_shot
from taps.types import PixelArray

CLASSES = ["cat", "dog", "owl", "fox", "hen", "cow", "bee", "ant", "elk", "bat"]
BATCH = 16  # of `taps predict`


def jpegs(count: int) -> list[bytes]:
    """Photographs of 640 × 480 as files."""
    found = []
    for number in range(count):
        buffer = io.BytesIO()
        Image.fromarray(photo(480, 640, number)).save(buffer, "JPEG", quality=90)
        found.append(buffer.getvalue())
    return found


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """The least of several: what is above it is other people's caches."""
    taken = []
    for _ in range(repeats + 1):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken[1:])  # the first warms up


def encoder(clip: Clip, together: int, times: int) -> Callable[[], object]:
    """The bare encoder on so many ready images at a time."""
    size = clip.config.image_size
    pixels = torch.randint(0, 256, (together, 3, size, size), dtype=torch.uint8)

    def work() -> None:
        with torch.no_grad():
            for _ in range(times):
                clip.encode_image(clip.preprocess(pixels))

    return work


def predicting(clip: Clip, files: list[bytes]) -> Callable[[], object]:
    """What `taps predict` does, the CSV left out."""
    predictor, names = zero_shot(clip, CLASSES), [str(place) for place in range(len(files))]
    return lambda: list(predict_all(names, lambda name: load_image(files[int(name)]), predictor, batch=BATCH))


def streaming(clip: Clip, files: list[bytes], views: int) -> Callable[[], object]:
    """The default method on a stream, one image after the other; every question is answered."""
    rng = np.random.default_rng(0)

    def work() -> None:
        learner = Learner(clip, CLASSES, views=views, fraction=0.5)
        for file in files:
            said = learner.predict_one(file)
            if said.ask:
                learner.learn_one(said.id, int(rng.integers(len(CLASSES))))

    return work


def viewing(clip: Clip, images: list[PixelArray], views: int) -> Callable[[], object]:
    how = {"views": views, **clip.config.framing}
    return lambda: [make_views(image, generator=sample_generator(0, 0), **how) for image in images]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--images", type=int, default=BATCH)
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    clip, files = load_clip(given.model, device="cpu"), jpegs(given.images)
    together = min(BATCH, given.images)
    pairs = {
        "predict": (encoder(clip, together, given.images // together), predicting(clip, files)),
        "view_ensemble+": (
            encoder(clip, given.views, given.images),
            streaming(clip, files, given.views),
        ),
    }
    for name, (bare, whole) in pairs.items():
        ms = [1000 * cpu_seconds(work, given.repeats) / given.images for work in (bare, whole)]
        row = {"what": name, "bare_ms": round(ms[0], 2), "whole_ms": round(ms[1], 2)}
        print(json.dumps(row | {"ratio": round(ms[0] / ms[1], 3)}), flush=True)
    images = [load_image(file) for file in files]
    parts: dict[str, Callable[[], object]] = {
        "decoding": lambda: [load_image(file) for file in files],
        "view 0": viewing(clip, images, 1),
        f"{given.views} views": viewing(clip, images, given.views),
    }
    for name, work in parts.items():
        ms_each = 1000 * cpu_seconds(work, given.repeats) / given.images
        print(json.dumps({"what": name, "ms": round(ms_each, 2)}), flush=True)


if __name__ == "__main__":
    main()
