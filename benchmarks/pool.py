"""Many streams of one model: all together against one after the other.

python benchmarks/pool.py --model ViT-B-16 --streams 1,8,64 --json pool.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from taps.learner import Learner
from taps.learner.prepared import DrawnImage
from taps.learner.together import Pool
from taps.learning.losses import confident_count
from taps.methods.base import Method, predict_batch
from taps.methods.registry import find_method
from taps.methods.taps import PromptTuner
from taps.model.clip import Clip, TextLayout, load_clip
from taps.model.prompts.maple import Maple
from taps.study.bench.measure import class_names, clock, machine, photo, summarise, wait
from taps.study.bench.step import IMAGE, free_memory, keep_busy, with_memory
from taps.types import PixelArray

QUIET: dict[str, Any] = {"tau0": 1e9, "warmup": 10**9}  # nobody is asked while the clock runs
FLOPS = 790e12
"""What an H200 reaches in bfloat16 products."""


def make_streams(clip: Clip, count: int, method: str, classes: int, views: int) -> list[Learner]:
    """As many streams of one model, each with a seed of its own."""
    names = class_names(classes)
    known, given = find_method(method).known, dict[str, Any]()
    if method == "taps":
        given = {**QUIET, "prompts": Maple().initial(clip, torch.Generator().manual_seed(0))}
    if "views" in known:
        given["views"] = views
    return [Learner(clip, names, method, seed=seed, **given) for seed in range(count)]


def measure_pool(
    clip: Clip, count: int, *, method: str = "taps", classes: int, views: int, repeats: int
) -> dict[str, Any]:
    """One image of each of so many streams: one stream after the other, and all together; they alternate.

    `step` is with views ready, the others from decoded images. Milliseconds are for all the images, so those
    of `together` are also how long a stream waits for its prediction.
    """
    images = [photo(*IMAGE, seed=seed) for seed in range(count)]
    free_memory(clip.device)
    (learners, work), peak = with_memory(lambda: _prepare(clip, images, method, classes, views), clip.device)
    work["alone"] = lambda: [
        learner.predict_one(image) for learner, image in zip(learners, images, strict=True)
    ]
    work["alone"]()
    times: dict[str, list[float]] = {name: [] for name in work}
    keep_busy(clip.device)
    for _ in range(repeats):
        for name, one in work.items():
            times[name].append(clock(one, clip.device))
    got = {name: summarise(values) for name, values in times.items()}
    row: dict[str, Any] = {
        "streams": count,
        "method": method,
        "classes": classes,
        "views": views,
        **{f"{name}_ms": vars(timing) for name, timing in got.items()},
        "images_per_second": 1e3 * count / got["together"].median,
        "ratio": got["alone"].median / got["together"].median,
        "mib_beyond_weights": peak,
    }
    if operations := step_flops(learners[0].method, views):
        row["tflop"] = count * operations / 1e12
        row["share_of_floor"] = row["tflop"] * 1e12 / FLOPS / (got["step"].median / 1e3)
    return row


def _prepare(
    clip: Clip, images: Sequence[PixelArray], method: str, classes: int, views: int
) -> tuple[list[Learner], dict[str, Callable[[], object]]]:
    """One stream an image; and what is timed of all of them together, which has run twice."""
    learners = make_streams(clip, len(images), method, classes, views)
    pool = Pool(learners)
    ready = [learner._views(DrawnImage(image, 0, 0)) for learner, image in zip(learners, images, strict=True)]
    work: dict[str, Callable[[], object]] = {
        "step": lambda: run_steps(learners, ready),
        "together": lambda: pool.predict(enumerate(images)),
    }
    for warm in (*work.values(), *work.values()):
        warm()
    wait(clip.device)
    return learners, work


def run_steps(learners: Sequence[Learner], views: Sequence[Tensor]) -> list[object]:
    """The methods' part of `Pool.predict`."""
    pairs = [(learner.method, each) for learner, each in zip(learners, views, strict=True)]
    return [predict() for predict in predict_batch(pairs)]


def step_flops(method: Method, views: int) -> float | None:
    """Operations of an episodic step's products: views forwards, confident ones there and back, view 0 again.

    Of the text tower, one way back and one forward. The way back computes gradients of the tokens alone, and
    so takes as many as the way there. None where a method takes no such step, or not for every image.
    """
    if not isinstance(method, PromptTuner) or method.batch_key() is None:
        return None
    layout, config = method.classifier.layout, method.classifier.clip.config
    if not isinstance(layout, TextLayout):
        return None
    kept = confident_count(views, method.step_settings.fraction)
    vision = method.anchor.tokens.vision
    tokens = config.image_tokens + (0 if vision is None else vision.shape[1])
    image = tower_flops(config.vision_width, config.vision_layers, tokens, tokens)
    text = tower_flops(
        config.text_width, config.text_layers, len(layout.collect), int(layout.lengths.float().mean())
    )
    runs = views if vision is None else views + 2 * kept + 1
    return runs * image + 2 * text


def tower_flops(width: int, layers: int, tokens: int, seen: int) -> float:
    """Of one forward: four products of the attention, two of the hidden layer of four times the width.

    >>> round(tower_flops(768, 12, 199, 199) / 1e9, 1)
    35.3
    """
    return layers * (24.0 * tokens * width**2 + 4.0 * tokens * seen * width)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="ViT-B-16")
    parser.add_argument("--device")
    parser.add_argument("--method", default="taps")
    parser.add_argument("--streams", default="1,8,64")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    device = torch.device(given.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    weights = None if given.model in ("tiny", "pocket") else "random"
    clip = load_clip(given.model, pretrained=weights, device=device, dtype=dtype)
    what = {"method": given.method, "classes": given.classes, "views": given.views, "repeats": given.repeats}
    rows = []
    for count in map(int, given.streams.split(",")):
        rows.append(measure_pool(clip, count, **what))
        print(json.dumps(rows[-1]), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps({**machine(clip.device), "pool": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
