"""Where the time of a batched step goes on a GPU, part by part, beside the least time each part can take.

    PYTHONPATH=src python benchmarks/parts.py --images 8 --json parts.json

Every part of `taps.learning.step.take_step` is captured by itself and replayed. Its kernels are sorted into
kinds by their names. The floor of a kind is the longer of its operations at the rate of bfloat16 products and
of its bytes, each tensor read and written once, at the rate of a simple kernel; both are measured first. Last
come the ways to compute the hidden layer and attention of all views in one block.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pool import make_streams
from profiling import attention_times, hidden_times, replay_time
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from taps.learning.fast.capture import GraphCapture
from taps.learning.gradient import Gradient
from taps.learning.losses import confident_count
from taps.learning.memory import Known, labelled_gradients
from taps.learning.step import (
    IN_ORDER,
    Scored,
    Streams,
    differentiate_views,
    move,
    predict_view,
    score_views,
    take_step,
)
from taps.methods.taps import PromptTuner
from taps.model.clip import TextLayout
from taps.model.clip.load import load_clip
from taps.study.bench.measure import machine

KINDS = {  # the first whose names fit
    "attention": "attention|sdpa|flash",
    "products": "nvjet|gemm|cutlass|xmma|splitK|_linear_gelu",
    "QuickGELU": "gelu",
    "norms": "norm",
}
BYTES = 2  # of a number in bfloat16
Work = dict[str, tuple[float, float]]
"""Operations and bytes of each kind."""


def tower_work(rows: int, width: int, blocks: float, seen: int, *, back: bool = False) -> Work:
    """Of one pass through so many whole blocks; `back`, the way back with gradients of tokens alone."""
    one = rows * width * BYTES  # a tensor of all tokens
    weights = 12 * width * width * BYTES
    return {
        "products": (blocks * 24.0 * rows * width**2, blocks * (16 * one + weights)),
        "attention": (
            blocks * (10.0 if back else 4.0) * rows * seen * width,
            blocks * one * (8 if back else 4),
        ),
        "QuickGELU": (0.0, blocks * 4 * one * (3 if back else 2)),
        "norms": (0.0, blocks * 2 * one * 4),
    }


def parts_of(
    tuner: PromptTuner, views: Tensor, graphs: GraphCapture
) -> dict[str, tuple[Callable[[], Any], Work]]:
    """The parts of a batched step, and what each has to do."""
    classifier, start, settings = tuner.classifier, tuner.anchor, tuner.step_settings
    config, layout = classifier.clip.config, classifier.layout
    assert isinstance(layout, TextLayout)
    assert start.tokens.vision is not None
    assert start.tokens.text is not None
    images, count = len(views), views.shape[1]
    labelled = labelled_gradients([None] * images, start)
    with graphs.capture_stream():  # on which the texts' autograd graph was built
        scored = score_views(classifier, start, views, settings)
        seen = differentiate_views(classifier, start, scored, settings)
        by_vision = seen.pull_back()
        by_text = start.pull_back_each(Gradient(seen.by_text, None), at_once=True)
        gradient = Gradient(by_text.text, by_vision) + labelled
        parameters, _, _ = move(classifier, start, tuner.fresh, gradient, settings)
    text, vision = (
        each[:, None].repeat(1, images, 1, 1) for each in (start.tokens.text, start.tokens.vision)
    )
    tokens = config.image_tokens + vision.shape[2]
    kept = images * confident_count(count, settings.fraction)

    def vision_work(seen: int, *, back: bool = False) -> Work:
        # Of the last block, keys and values alone: a sixth of its products.
        blocks = config.vision_layers - 1 + 1 / 6
        return tower_work(seen * tokens, config.vision_width, blocks, tokens, back=back)

    def text_work(*, back: bool) -> Work:
        rows, ends = len(layout.collect), len(layout.ends)
        blocks = config.text_layers - 1 + 0.25 + 0.75 * ends / rows
        seen = int(layout.lengths.float().mean())
        return tower_work(images * rows, config.text_width, blocks, seen, back=back)

    def score() -> Scored:
        return score_views(classifier, start, views, settings)

    def confident() -> Tensor | None:
        return differentiate_views(classifier, start, scored, settings).pull_back()

    def encode(what: Callable[..., Tensor], *given: Tensor) -> Tensor:
        with torch.no_grad():
            return what(*given)

    def back() -> Gradient:
        return start.pull_back_each(Gradient(seen.by_text, None), at_once=True)

    def step(streams: Streams) -> Tensor:
        known = Known(labelled)
        return take_step(classifier, start, tuner.fresh, views, known, settings, streams=streams).logits

    there, again = vision_work(kept), vision_work(kept, back=True)
    return {
        "score views": (score, fused(vision_work(images * count))),
        "confident views": (confident, add(there, again)),
        "texts, way back": (back, text_work(back=True)),
        "update": (lambda: move(classifier, start, tuner.fresh, gradient, settings)[0], {}),
        "texts again": (lambda: encode(classifier.text, text), fused(text_work(back=False))),
        "view 0 again": (lambda: encode(classifier.image, scored.images[:, 0], vision), vision_work(images)),
        "predict": (lambda: predict_view(classifier, scored, parameters), {}),
        "whole step, one stream": (lambda: step(IN_ORDER), {}),
        "whole step, two streams": (lambda: step(graphs), {}),
    }


def fused(work: Work) -> Work:
    """Without QuickGELU: it is part of the product."""
    return {kind: least for kind, least in work.items() if kind != "QuickGELU"}


def add(*works: Work) -> Work:
    return {kind: (sum(w[kind][0] for w in works), sum(w[kind][1] for w in works)) for kind in works[0]}


def kind_times(replay: Callable[[], None], repeats: int = 5) -> dict[str, float]:
    """Milliseconds of kernels, by kind."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        for _ in range(repeats):
            replay()
        torch.cuda.synchronize()
    found: dict[str, float] = defaultdict(float)
    for row in trace.key_averages():
        if row.self_device_time_total > 0:
            kind = next((kind for kind, names in KINDS.items() if re.search(names, row.key)), "other")
            found[kind] += row.self_device_time_total / 1e3 / repeats
    return dict(found)


def drop(_: Tensor) -> None:
    """A result that is returned would be copied once more."""


def rates(graphs: GraphCapture) -> tuple[float, float]:
    """Operations a second of a large product, and bytes a second of a kernel that reads and writes a lot."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    made = torch.empty_like(a)
    product = replay_time(graphs.capture(lambda: drop(torch.mm(a, b, out=made))), 20)
    large = torch.randn(1 << 30, dtype=torch.bfloat16, device="cuda")
    to = torch.empty_like(large)
    copy = replay_time(graphs.capture(lambda: drop(torch.neg(large, out=to))), 10)
    return 2 * 8192**3 / product * 1e3, 2 * large.nbytes / copy * 1e3


def measure(images: int, views: int, classes: int, model: str) -> dict[str, Any]:
    torch.manual_seed(0)
    clip = load_clip(model, pretrained="random", device="cuda", dtype=torch.bfloat16)
    tuner = make_streams(clip, 1, "taps", classes, views)[0].method
    assert isinstance(tuner, PromptTuner)
    size = clip.config.image_size
    pixels = torch.randint(0, 256, (images, views, 3, size, size), dtype=torch.uint8, device="cuda")
    graphs = tuner.engine.graphs  # the texts' autograd graph was built on its stream
    assert graphs is not None
    flops, bandwidth = rates(graphs)
    rows: list[dict[str, Any]] = []
    for name, (work, least) in parts_of(tuner, pixels, graphs).items():
        graph = graphs.capture(work)
        took, kinds = replay_time(graph, 20), kind_times(graph.replay)
        floors = {kind: 1e3 * max(ops / flops, moved / bandwidth) for kind, (ops, moved) in least.items()}
        rows.append({"part": name, "ms": took, "kernels_ms": kinds, "floor_ms": floors,
                     "tflop": {kind: ops / 1e12 for kind, (ops, _) in least.items() if ops},
                     "gb": {kind: moved / 1e9 for kind, (_, moved) in least.items()}})  # fmt: skip
        show(rows[-1])
        del graph
    given = {"model": model, "images": images, "views": views, "classes": classes}
    config = clip.config
    count, tokens, heads = images * views, config.image_tokens + 2, config.vision_heads
    kernels = {
        "hidden_ms": hidden_times(count * tokens, config.vision_width),
        "attention_ms": attention_times(count, tokens, heads, config.vision_width // heads),
    }
    print(json.dumps(kernels, indent=1), flush=True)
    measured = {"tflops": flops / 1e12, "tb_per_s": bandwidth / 1e12, "parts": rows}
    return {"machine": machine(clip.device), **given, **measured, **kernels}


def show(row: dict[str, Any]) -> None:
    floor = sum(row["floor_ms"].values())
    share = f", floor {floor:.2f}: {floor / row['ms']:.0%}" if floor else ""
    print(f"{row['part']}: {row['ms']:.2f} ms{share}", flush=True)
    for kind, took in sorted(row["kernels_ms"].items(), key=lambda pair: -pair[1]):
        least = row["floor_ms"].get(kind)
        told = "" if least is None else f"   floor {least:6.2f} ({least / took:.0%})"
        print(f"    {kind:10} {took:7.2f}{told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--model", default="ViT-B-16")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report = measure(options.images, options.views, options.classes, options.model)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
