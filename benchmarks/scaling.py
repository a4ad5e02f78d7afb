"""Time and memory against classes, views, labelled images, image size and stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from taps.bench.measure import class_names, photo
from taps.bench.step import Case, Load, measure_step
from taps.clip import Clip
from taps.clip.model import initialise, unfilled
from taps.learner import Learner
from taps.report.svg import BLUE, ORANGE
from taps.session.process import peak_memory_mb, reset_peak

BASE = Case(classes=100, buffer=150, reset="sample", views=64)
TITLES = {
    "stream": "Memory along a stream",
    "views": "Views of an image",
    "buffer": "Labelled images kept",
    "image_size": "Side of the model's image",
    "classes": "Classes",
}
UNITS = {
    "stream": "images seen",
    "views": "views (log scale)",
    "buffer": "labelled images (log scale)",
    "image_size": "pixels",
    "classes": "classes (log scale)",
}


def sweep(
    load: Load,
    over: str,
    values: Sequence[int],
    *,
    device: torch.device,
    dtype: torch.dtype,
    repeats: int = 5,
) -> Iterator[dict[str, Any]]:
    """Measure our step with one number varied: "classes", "views", "buffer" or "image_size"."""
    for value in values:
        size = over == "image_size"
        case = BASE if size else Case(**{**asdict(BASE), over: value})
        make = resized(load, value) if size else load
        got = measure_step(make, case, device=device, dtype=dtype, repeats=repeats, reference=False)
        yield {"over": over, "value": value, "ms": vars(got.ours), "peak_mib": got.ours_mib}


def resized(load: Load, size: int) -> Load:
    """The same architecture for images of another size, with random weights."""

    def make(dtype: torch.dtype, device: torch.device) -> Clip:
        config = replace(load(torch.float32, torch.device("cpu")).config, image_size=size)
        clip = unfilled(config, device=device, dtype=dtype)
        return initialise(clip, torch.Generator().manual_seed(0))

    return make


def long_stream(clip: Clip, images: int, *, every: int) -> Iterator[dict[str, Any]]:
    """Memory along a stream: peak megabytes, resident or of the device, within every so many images."""
    learner = Learner(clip, class_names(10), "taps", views=2, prompts="hand", buffer=150)
    pictures = [photo(40, 50, seed=seed) for seed in range(16)]
    for index in range(images):
        prediction = learner.predict_one(pictures[index % len(pictures)])
        if prediction.ask:
            learner.learn_one(prediction.id, index % 10)
        if (index + 1) % every == 0:
            peak = peak_memory_mb(clip.device)
            yield {"over": "stream", "value": index + 1, "peak_mib": peak, "asked": learner.asked}
            reset_peak(clip.device)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """One panel for each number that was varied: time on the left axis, memory on the right."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(row["over"] for row in rows))
    columns = min(3, len(kinds))
    lines = -(-len(kinds) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4.2 * columns, 3.2 * lines), squeeze=False)
    for axis in axes.flat[len(kinds) :]:
        axis.set_visible(False)
    for axis, kind in zip(axes.flat, kinds, strict=False):
        mine = [row for row in rows if row["over"] == kind]
        values = [row["value"] for row in mine]
        axis.set_title(TITLES[kind])
        axis.set_xlabel(UNITS[kind])
        axis.set_xscale("linear" if kind in ("image_size", "stream") else "symlog")
        if "ms" in mine[0]:
            times = [row["ms"]["median"] for row in mine]
            axis.plot(values, times, "o-", color=BLUE)
            axis.set_ylabel("ms per image", color=BLUE)
            if max(times) > 20 * min(times):
                axis.set_yscale("log")
            else:
                axis.set_ylim(0, 1.15 * max(times))
        else:
            axis.set_yticks([])
        other = axis.twinx()
        memory = [row["peak_mib"] for row in mine]
        other.plot(values, memory, "s--", color=ORANGE, markersize=4)
        other.set_ylabel("peak memory (MiB)", color=ORANGE)
        other.set_ylim(0, 1.25 * max(memory))
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
