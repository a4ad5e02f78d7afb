"""The label head's share of a step: every method with and without it, in turns, in one process.

    PYTHONPATH=src python benchmarks/head.py --model ViT-B-16 --classes 100,1000 --file head.json
    PYTHONPATH=src python benchmarks/head.py --model pocket --threads 2 --file head-cpu.json

Views are made before the clock starts. The head has seen a full buffer of made-up images and learned so many
answers that the oldest are let go (`later`), or has seen few images and makes its metric (`first`). On a CPU
the head's time is also taken alone, and with a product of torch's between images, each with one thread for
numpy's products, as the head has it, and with as many as numpy takes: these fight with torch's for the cores.
Needs neither the command line's packages nor weights.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from taps.head import threads
from taps.head.head import Head
from taps.learner import Learner
from taps.methods.base import MethodOutput
from taps.methods.headed import Headed
from taps.model.clip import Clip
from taps.model.clip.load import load_clip
from taps.model.prompts.maple import Maple
from taps.study.bench.measure import class_names, clock, machine, photo
from taps.study.bench.step import keep_busy, views_of
from taps.types import Answer

METHODS = ("taps", "view_ensemble")
LATER = 1100  # images that fill the buffer of recent ones


def made_up(clip: Clip, classes: int, views: int, place: int) -> MethodOutput:
    """What a method may say of an image: features around a class's centre, any probabilities."""
    chance = torch.Generator().manual_seed(place)
    centre = torch.Generator().manual_seed(10**6 + place % classes)
    dim = clip.config.embed_dim
    features = torch.randn(dim, generator=centre) + torch.randn(views, dim, generator=chance)
    features = torch.nn.functional.normalize(features, dim=-1).to(clip.device)
    probs = torch.softmax(3 * torch.randn(classes, generator=chance), dim=0).to(clip.device)
    return MethodOutput(probs, 1.0, feature=features[0], features=features, ensemble=probs.log())


def prepare(learner: Learner, images: int, labels: int) -> list[float]:
    """Let a head see made-up images and learn the last of them; milliseconds a label."""
    method, times = learner.method, []
    assert isinstance(method, Headed)
    for place in range(images):
        output = method.finish(made_up(learner.clip, len(learner.classes), 16, place))
        if place >= images - labels:
            assert output.item is not None
            label, item = place % len(learner.classes), output.item
            times.append(clock(lambda: method.learn_head(place, Answer(label), item), learner.clip.device))  # noqa: B023
    return times


def share_of_a_step(
    clip: Clip, method: str, classes: int, views: int, repeats: int, phase: str
) -> dict[str, Any]:
    """Milliseconds of `predict` without and with a head, in turns, and the difference as a share."""
    names, image = class_names(classes), photo(375, 500)
    given: dict[str, Any] = {"views": views}
    if method == "taps":
        given["prompts"] = Maple().initial(clip, torch.Generator().manual_seed(0))
    learners = {way: Learner(clip, names, method + way, **given) for way in ("", "+")}
    few = 32 if phase == "first" else LATER
    labels = prepare(learners["+"], few, few // 2 if phase == "first" else 200)
    shown = views_of(image, clip, views, "tensor", 0)
    times: dict[str, list[float]] = {way: [] for way in learners}
    for learner in learners.values():
        learner.method.predict(shown)
        learner.method.predict(shown)
    keep_busy(clip.device)
    for _ in range(repeats):
        for way, learner in learners.items():
            if clip.device.type == "cuda":
                learner.method.predict(shown)  # in a stream, an image comes after one like it
            times[way].append(clock(lambda: learner.method.predict(shown), clip.device))  # noqa: B023
    without, with_head = (statistics.median(times[way]) for way in ("", "+"))
    row = {
        "method": method,
        "classes": classes,
        "views": views,
        "phase": phase,
        "without_ms": without,
        "with_ms": with_head,
        "share": with_head / without - 1,
        "label_ms": statistics.median(labels[-20:]),
        "replay_ms": replay_ms(learners["+"]),
    }
    print(json.dumps(row), flush=True)
    return row


def replay_ms(learner: Learner, times: int = 20) -> list[float]:
    """Of the head's CUDA graphs, that which computes and that which remembers; none where it has none."""
    head = learner.method.device_head if isinstance(learner.method, Headed) else None
    if head is None:
        return []
    graphs = [graph for kind in (head.captured, head.keepers) for graph in list(kind.values())[:1]]
    return [clock(lambda: [graph.replay() for _ in range(times)], head.device) / times for graph in graphs]  # noqa: B023


def head_alone(classes: int, dim: int, between: Callable[[], object], images: int) -> dict[str, float]:
    """Milliseconds of the head on the host, with something else done between images."""
    chance = np.random.default_rng(0)
    head, centres = Head(dim, classes, bases=2, several=True), chance.normal(size=(classes, dim))
    times, busy, labels, others = [], [], [], []
    for place in range(images):
        label = int(chance.integers(classes))
        views = centres[label] + chance.normal(size=(16, dim))
        views /= np.linalg.norm(views, axis=1, keepdims=True)
        logs = np.log(chance.dirichlet(np.ones(classes), 2))
        began = time.perf_counter()
        between()
        others.append(1e3 * (time.perf_counter() - began))
        began, processor = time.perf_counter(), time.process_time()
        look = head.see(views, logs)
        head.predict(look)
        times.append(1e3 * (time.perf_counter() - began))
        busy.append(1e3 * (time.process_time() - processor))
        if place % 5 == 0:
            began = time.perf_counter()
            head.learn(look, label)
            labels.append(1e3 * (time.perf_counter() - began))
    first, later = times[:512], times[512:]
    return {
        "first_ms": statistics.median(first),
        "first_mean_ms": statistics.mean(first),
        "later_ms": statistics.median(later or first),
        "processor_ms": statistics.median(busy),
        "torch_ms": statistics.median(others),
        "label_ms": statistics.median(labels[-20:]),
    }


def beside_torch(classes: int, dim: int, images: int) -> list[dict[str, Any]]:
    """The head's time alone, and with products of torch's threads between images; theirs alone.

    The same again with as many threads for numpy's products as numpy takes, twice in turns.
    """
    numbers, rows = torch.randn(600, 600), []
    alone = statistics.median(clock(lambda: numbers @ numbers, numbers.device) for _ in range(100))
    ways: dict[str, Callable[[], object]] = {"alone": lambda: None, "beside torch": lambda: numbers @ numbers}
    for one_thread in (True, False) * 2:
        limit = nullcontext() if one_thread else patch.object(threads, "openblas", lambda: None)
        for way, between in ways.items():
            with limit:
                found = head_alone(classes, dim, between, images)
            told = {"way": way, "one_thread": one_thread, "classes": classes}
            rows.append({**told, **found, "torch_alone_ms": alone})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="ViT-B-16")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--classes", default="100,1000")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--images", type=int, default=1000, help="of the head alone; 0 to leave it out")
    parser.add_argument("--threads", type=int, help="of torch on a CPU")
    parser.add_argument("--file", type=Path, default=Path("head.json"))
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO)  # says why a head has no graphs
    device = torch.device(given.device)
    if given.threads:
        torch.set_num_threads(given.threads)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    weights = None if given.model == "pocket" else "random"
    clip = load_clip(given.model, pretrained=weights, device=device, dtype=dtype)
    report: dict[str, Any] = {"machine": machine(device), "model": given.model, "steps": [], "alone": []}

    def keep(part: str, rows: list[dict[str, Any]]) -> None:
        report[part] += rows
        given.file.write_text(json.dumps(report, indent=1) + "\n")

    counts = [int(count) for count in given.classes.split(",")]
    for classes in counts:
        for method in given.methods.split(","):
            for phase in ("later", "first"):
                keep(
                    "steps",
                    [share_of_a_step(clip, method, classes, given.views, given.repeats, phase)],
                )
    for classes in counts if given.images else []:
        keep("alone", beside_torch(classes, 512, given.images))


if __name__ == "__main__":
    main()
