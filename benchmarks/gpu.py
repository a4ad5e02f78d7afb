"""What docs/results/speed.md says of a GPU: are the numbers right, and how fast do they come?

    PYTHONPATH=src python benchmarks/gpu.py --out results/
    PYTHONPATH=src python benchmarks/gpu.py --only steps --file steps.json --out results/

Needs neither the command line's packages nor weights. `benchmarks/all_gpu.py` runs every part within a time.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import math
import time
import timeit
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from profiling import attention_times, kernel_times, stage_times

from taps.bench.measure import clock, machine, photo, summarise, wait
from taps.bench.step import (
    Case,
    cases,
    fill,
    free_memory,
    keep_busy,
    make_learner,
    measure_step,
    tuner_of,
    views_of,
)
from taps.clip import Clip
from taps.clip.load import load_clip
from taps.data import load_dataset, stream_order
from taps.images.geometry import Framing
from taps.images.prefetch import prefetch
from taps.images.tensor import batched_views, views_kernel
from taps.images.views import make_views, sample_crops, sample_generator
from taps.learner import Learner
from taps.prompts import maple
from taps.types import PixelArray

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
PARTS = ("views", "compare", "steps", "profile", "accuracy")


class Models:
    """Random weights, drawn once."""

    def __init__(self, name: str) -> None:
        self.master = load_clip(name, pretrained="random")

    def __call__(self, dtype: torch.dtype, device: torch.device) -> Clip:
        return copy.deepcopy(self.master).to(device=device, dtype=dtype)


def compare_engines(load: Models) -> list[dict[str, object]]:
    """How far the captured step is from the plain one, and bf16 from float32."""
    rows = []
    for reset in ("sample", "never"):
        case = Case(100, 8, reset)
        streams = {}
        for dtype, engine in (
            (torch.float32, "eager"),
            (torch.float32, "graph"),
            (torch.bfloat16, "eager"),
            (torch.bfloat16, "graph"),
        ):
            clip = load(dtype, DEVICE)
            prompts = maple.initial(clip, torch.Generator().manual_seed(0))
            learner = make_learner(clip, case, prompts, engine)
            probs = []
            for step in range(5):
                views = views_of(photo(375, 500, seed=step), clip, case.views, "tensor", step)
                if step == 1:
                    fill(learner, views, case.buffer)
                output = learner.method.predict(views)
                probs.append(torch.cat([output.probs.cpu(), torch.tensor([output.entropy])]))
            streams[dtype, engine] = torch.stack(probs)
        for a, b in (
            ((torch.float32, "graph"), (torch.float32, "eager")),
            ((torch.bfloat16, "graph"), (torch.bfloat16, "eager")),
            ((torch.bfloat16, "graph"), (torch.float32, "eager")),
        ):
            off = [float((x - y).norm() / y.norm()) for x, y in zip(streams[a], streams[b], strict=True)]
            rows.append({"reset": reset, "of": f"{a[1]} {a[0]}", "against": f"{b[1]} {b[0]}", "off": off})
            print(rows[-1], flush=True)
    return rows


def profile_case(load: Models, case: Case) -> dict[str, object]:
    """Stages and kernels of one case; on one CUDA stream and on two."""
    clip = load(torch.bfloat16, DEVICE)
    prompts = maple.initial(clip, torch.Generator().manual_seed(0))
    views = views_of(photo(375, 500), clip, case.views, "tensor", 0)
    row: dict[str, object] = {"case": vars(case)}
    for streams in (1, 2):
        learner = make_learner(clip, case, prompts, "auto")
        tuner = tuner_of(learner)
        if streams == 1 and tuner.engine.graphs is not None:
            tuner.engine.graphs.drop_side_stream()
        fill(learner, views, case.buffer)
        for _ in range(3):
            tuner.predict(views)
        keep_busy(DEVICE, 0.2)
        whole = [clock(functools.partial(tuner.predict, views), DEVICE) for _ in range(10)]
        row[f"stages_ms_{streams}"] = stage_times(tuner) | {"whole": summarise(whole).median}
        print(case, streams, "streams", row[f"stages_ms_{streams}"], flush=True)
        if streams == 2:
            row["kernels"] = kernels = kernel_times(tuner, views, top=40)
            for kernel in kernels[:16]:
                print(f"  {kernel['ms']:8.3f} ms {kernel['calls']:7.1f} × {kernel['kernel'][:90]}")
        del learner, tuner
        free_memory(DEVICE)
    return row


def measure_views() -> dict[str, object]:
    """From decoded pixels to views: by the kernel, by matrix products, by Pillow; cold and warm."""
    products = functools.partial(batched_views, device=DEVICE, dtype=torch.float16)
    rows: dict[str, object] = {}
    for height, width in ((375, 500), (64, 64), (1200, 1600)):
        image = photo(height, width)

        def make(way: str, step: int, image: PixelArray = image) -> object:
            generator = sample_generator(0, step)
            if way == "products":
                return products(image, *sample_crops(*image.shape[:2], 63, generator), Framing(224))
            return make_views(image, views=64, size=224, generator=generator, device=DEVICE, backend=way)

        def times(way: str, count: int, make: Callable[..., object] = make) -> dict[str, float]:
            return vars(summarise([clock(lambda s=s: make(way, s), DEVICE) for s in range(count)]))

        make("tensor", 0), make("products", 0)
        row: dict[str, object] = {"fused": views_kernel(224, DEVICE) is not None if CUDA else False}
        if not rows:  # as the first figure of this page was taken: the first work of a process
            time.sleep(1)
            row["cold"] = {way: times(way, 10) for way in ("tensor", "products")}
        keep_busy(DEVICE, 0.5)
        row["warm"] = {way: times(way, 40) for way in ("tensor", "products")}
        row["pillow"] = times("pillow", 5)
        # What the host does until all is launched, nothing waiting for the device.
        began = time.perf_counter()
        for step in range(40):
            make("tensor", step)
        row["host_ms"] = 1e3 * (time.perf_counter() - began) / 40
        wait(DEVICE)
        row["draw_ms"] = 1e3 * min(
            timeit.repeat(
                lambda h=height, w=width: sample_crops(h, w, 63, sample_generator(0, 1)), number=20, repeat=3
            )
        ) / 20  # fmt: skip
        rows[f"{height}x{width}"] = row
        print(f"views {height}x{width}", json.dumps(row), flush=True)
    return rows


def measure_accuracy(data: str, images: int, keep: Callable[[object], None]) -> dict[str, object]:
    """`taps` with the embedded model in float32 and bfloat16, image by image over one stream.

    Args:
        data: A data set, such as Tiny-ImageNet's val zip.
        images: Length of the stream.
        keep: Takes the figures so far.
    """
    dataset = load_dataset(data)
    order = stream_order(len(dataset.samples), 0, images).tolist()
    learners = {
        name: Learner(load_clip("pocket", device=DEVICE, dtype=dtype), dataset.classes, "taps", seed=0)
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
    }
    right: dict[str, list[bool]] = {name: [] for name in learners}
    seconds = dict.fromkeys(learners, 0.0)
    row: dict[str, object] = {}
    for index, image in zip(order, prefetch(order, dataset.image, threads=4, depth=16), strict=True):
        label = dataset.samples[index].label
        assert label is not None
        for name, learner in learners.items():
            began = time.perf_counter()
            said = learner.predict_one(image.result())
            if said.ask:
                learner.learn_one(said.id, label)
            seconds[name] += time.perf_counter() - began
            right[name].append(said.index == label)
        count = len(right["fp32"])
        if count % 250 == 0 or count == len(order):
            a, b = (np.array(right[name]) for name in ("fp32", "bf16"))
            share = float(a.mean())
            row = {
                "data": dataset.name,
                "images": count,
                "accuracy": {name: float(np.mean(each)) for name, each in right.items()},
                "difference": float(b.mean() - share),
                "standard_error": math.sqrt(share * (1 - share) / count),
                "disagreements": int((a != b).sum()),
                "asked": {name: learner.asked for name, learner in learners.items()},
                "ms": {name: 1e3 * each / count for name, each in seconds.items()},
            }
            keep(row)
            print("accuracy", json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--model", default="ViT-B-16")
    parser.add_argument("--classes", default="100,1000")
    parser.add_argument("--buffers", default="0,150,1500")
    parser.add_argument("--cases", default="", help="instead of all: classes:buffer:reset,…")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--skip", default="", help=f"any of {', '.join(PARTS)}")
    parser.add_argument("--only", default="", help="these parts alone")
    parser.add_argument("--file", default="gpu.json", help="name of the report")
    parser.add_argument(
        "--data", default="", help="data set for the accuracy, such as Tiny-ImageNet's val zip"
    )
    parser.add_argument("--images", type=int, default=2000, help="length of its stream")
    options = parser.parse_args()
    began = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    only, skip = (set(text.split(",")) - {""} for text in (options.only, options.skip))
    parts = (only or set(PARTS)) - skip
    load = Models(options.model) if parts & {"compare", "profile", "steps"} else None
    report: dict[str, object] = {"machine": machine(DEVICE), "model": options.model}

    def keep(name: str, value: object) -> None:
        report[name] = value
        (options.out / options.file).write_text(json.dumps(report, indent=1, default=str) + "\n")
        print(f"-- {name} done at {time.perf_counter() - began:.0f} s", flush=True)

    counts = [int(each) for each in options.classes.split(",")]
    buffers = [int(each) for each in options.buffers.split(",")]
    if "views" in parts:  # first: how a process that just began fares is part of the answer
        keep("views", measure_views())
    if "compare" in parts and load:
        keep("compare", compare_engines(load))
    if "steps" in parts and load:
        rows = []
        named = [each.split(":") for each in options.cases.split(",") if each]
        wanted = [Case(int(k), int(n), reset) for k, n, reset in named]
        for case in wanted or cases(counts, buffers, ("sample", "never"), 64):
            repeats = options.repeats if case.buffer <= 150 else max(3, options.repeats // 2)
            got = measure_step(
                load, case, device=DEVICE, dtype=torch.bfloat16, repeats=repeats, reference=case.buffer <= 150
            )
            rows.append(asdict(got))
            show = {
                k: (round(v["median"], 2) if isinstance(v, dict) and "median" in v else v)
                for k, v in asdict(got).items()
            }
            print(show, flush=True)
            keep("steps", rows)
    if "profile" in parts and load:
        profiles: list[object] = []
        for reset in ("sample", "never"):
            profiles.append(profile_case(load, Case(counts[-1], 150, reset)))
            keep("profile", profiles)
        if CUDA:
            keep("attention", {batch: attention_times(batch, 199, 12, 64) for batch in (6, 30, 64)})
    if "accuracy" in parts and options.data:
        measure_accuracy(options.data, options.images, lambda row: keep("accuracy", row))


if __name__ == "__main__":
    main()
