"""What methods cost: time an image, beside a zero-shot pass over the same views.

    python benchmarks/methods.py --model pocket --classes 100 --views 64 --threads 2
    python benchmarks/methods.py --features --threads 1

The second form times methods in feature space alone, from the features of the views to the prediction: no
encoder runs, so that a millisecond is not lost in the noise of many.

The zero-shot pass encodes all views and compares them with text features that are there already; views are
made before the clock starts, for every method alike. Numbers are medians.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from taps import load_clip
from taps.clip import Clip
from taps.errors import TapsError
from taps.images.views import make_views, sample_generator
from taps.methods.features import FeatureMethod
from taps.methods.registry import find_method, list_methods, method_settings
from taps.prompts import maple
from taps.prompts.base import KINDS
from taps.training.stats import collect_stats


class Noise:
    """Pictures of noise, to make statistics of where none are shipped; what they show costs nothing."""

    name, classes = "noise", ("a", "b")

    def __init__(self, count: int) -> None:
        self.labels: list[int | None] = [0] * count

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> np.ndarray:
        return np.random.default_rng(index).integers(0, 256, (80, 80, 3), dtype=np.uint8)


def measure(
    work: dict[str, Callable[[], object]], repeats: int, device: torch.device
) -> dict[str, list[float]]:
    """Median wall and processor seconds of each; taken in turns, so that a busy moment hits all of them."""
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for turn in range(repeats + 1):
        for name, call in work.items():
            began = time.perf_counter(), time.process_time()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if turn:  # the first one warms up
                spent[name].append((time.perf_counter() - began[0], time.process_time() - began[1]))
    return {
        name: [statistics.median(column) for column in zip(*pairs, strict=True)]
        for name, pairs in spent.items()
    }


def stand_ins(clip: Clip, name: str) -> dict[str, object]:
    """Settings that let a method run where no trained prompts are shipped: untrained ones cost the same."""
    method = find_method(name)
    if method.prompts not in KINDS:
        return {}
    if getattr(method.settings, "weight_coarse", 0):
        prompts = maple.initial(clip, torch.Generator().manual_seed(0))
        return {"prompts": prompts, "source": collect_stats(clip, prompts, Noise(8))}
    return {"prompts": method.prompts}


def feature_methods(methods: list[str]) -> list[str]:
    """Those on features alone: a text context that is tuned needs the text encoder."""
    known = {name: find_method(name) for name in methods}
    return [
        name
        for name, each in known.items()
        if each.prompts is None and isinstance(each.build, type) and issubclass(each.build, FeatureMethod)
    ]


def beyond_the_encoder(
    clip: Clip, classes: tuple[str, ...], name: str, views: int, before: int
) -> Callable[[], object]:
    """One image after another of random features: confident views, prediction and what is learned of it."""
    given = {"views": views} if "views" in find_method(name).known and views > 1 else {}
    method = find_method(name).build(clip, classes, method_settings(name, given), 0)
    assert isinstance(method, FeatureMethod)
    draw = torch.Generator().manual_seed(0)
    count = views if given else 1
    pixels = torch.zeros(count, 3, 1, 1, dtype=torch.uint8)

    def image() -> torch.Tensor:
        of = method.text[int(torch.randint(len(classes), (), generator=draw))].cpu()
        return torch.nn.functional.normalize(torch.randn(count, len(of), generator=draw) + 4 * of, dim=-1)

    for _ in range(before):
        method.predict(pixels, image().to(method.text))
    turns = itertools.cycle([image().to(method.text) for _ in range(50)])
    return lambda: method.predict(pixels, next(turns))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--methods", nargs="*", default=list_methods())
    parser.add_argument("--features", action="store_true", help="only what comes after the encoder")
    parser.add_argument("--before", type=int, default=600, help="images seen before the clock starts")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    clip = load_clip(args.model)
    words = ("red", "old", "small", "tall", "wild", "grey", "long", "round", "dark", "soft")
    things = ("cat", "dog", "car", "tree", "boat", "lamp", "bird", "fork", "chair", "house")
    classes = tuple(f"{word} {thing}" for word in words for thing in things)
    classes = tuple((classes * (args.classes // len(classes) + 1))[: args.classes])
    classes = tuple(f"{name} {place // 100}" if place >= 100 else name for place, name in enumerate(classes))
    if args.features:
        work = {
            name: beyond_the_encoder(clip, classes, name, args.views, args.before)
            for name in feature_methods(args.methods)
        }
        found = measure(work, args.repeats, clip.device)
        for name, (_, busy) in sorted(found.items(), key=lambda item: item[1][1]):
            print(f"{name:14} {1000 * busy:6.2f} ms beyond the encoder")
        return
    picture = Noise(1).image(0)
    views = make_views(
        picture,
        views=args.views,
        **clip.config.framing,
        generator=sample_generator(0, 0),
        device=clip.device,
    )
    work, plain = {}, {}
    for name in dict.fromkeys(("zero_shot", "view_ensemble", *args.methods)):
        several = "views" in find_method(name).known
        plain[name] = "view_ensemble" if several else "zero_shot"
        given = {"views": args.views} if several else {}
        try:
            method = find_method(name).build(clip, classes, method_settings(name, given), 0)
        except TapsError:
            method = find_method(name).build(
                clip, classes, method_settings(name, given | stand_ins(clip, name)), 0
            )
        work[name] = partial(method.predict, views if several else views[:1])
    rows = measure(work, args.repeats, clip.device)
    # The mean of the confident views is the zero-shot pass over all of them, and next to nothing more.
    found = {
        name: {
            "seconds": own,
            "ratio": own / rows[plain[name]][0],
            "cpu_seconds": busy,
            "cpu_beyond": busy - rows[plain[name]][1],
        }
        for name, (own, busy) in rows.items()
    }
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{args.model}, {args.classes} classes, {args.views} views, {args.threads} threads, {clip.device}")
    print(f"{'method':14} {'ms':>9} {'ratio':>6} {'cpu ms':>9} {'beyond':>9}")
    for name, row in found.items():
        wall_ms, cpu_ms, beyond = (1000 * row[key] for key in ("seconds", "cpu_seconds", "cpu_beyond"))
        print(f"{name:14} {wall_ms:9.1f} {row['ratio']:6.2f} {cpu_ms:9.1f} {beyond:9.1f}")


if __name__ == "__main__":
    main()
