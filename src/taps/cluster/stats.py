"""Source statistics in parts over a Ray cluster; parts that are done stay, and merge exactly in any order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from taps.clip import load_clip
from taps.cluster.connect import DEFAULT, connected
from taps.data import Dataset
from taps.errors import StateError
from taps.files import read_json, write_json
from taps.prompts.choose import trained_prompts
from taps.prompts.source import SourceStats, merge_stats
from taps.training.options import StatsCluster, StatsOptions
from taps.training.stats import collect_stats

RETRIES = 3


def split_evenly(count: int, parts: int) -> list[range]:
    """So many consecutive ranges, of lengths that differ by one at most; none is empty.

    >>> split_evenly(7, 3)
    [range(0, 3), range(3, 5), range(5, 7)]
    """
    parts = min(parts, count)
    size, longer = divmod(count, parts)
    starts = [number * size + min(number, longer) for number in range(parts + 1)]
    return [range(start, stop) for start, stop in pairwise(starts)]


def stats_on_ray(
    cluster: StatsCluster,
    images: Dataset,
    options: StatsOptions,
    folder: Path,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[SourceStats, float]:
    """Statistics of a whole set, each part a task, and how many images a second went through.

    Args:
        cluster: Where, and how many tasks.
        images: The source set; every machine must see its files at the same paths.
        options: Of every part.
        folder: Parts are written here, on a disk that all machines share; those found there are kept.
        report: Called with images done and images in all.
    """
    if folder.is_file():
        raise StateError(
            f"{folder} holds a pass that was begun without --ray; go on without it, or remove it."
        )
    folder.mkdir(parents=True, exist_ok=True)
    made_with = asdict(options) | {"layers": list(options.layers)}
    _check_same(folder, made_with | {"data": images.name, "images": len(images)})
    ranges = split_evenly(len(images), cluster.parts)
    files = {part: folder / f"{part.start}-{part.stop}.safetensors" for part in ranges}
    left = {part: file for part, file in files.items() if not file.exists()}
    began = time.perf_counter()
    with connected(cluster.ray or DEFAULT) as ray:
        task = ray.remote(_make_part).options(
            num_cpus=cluster.cpus_per_run, num_gpus=cluster.gpus_per_run, max_retries=RETRIES
        )
        shared = ray.put(images)
        given = options, Path.cwd()
        waiting = {task.remote(shared, part, file.resolve(), *given): part for part, file in left.items()}
        done = sum(map(len, files)) - sum(map(len, left))
        while waiting:
            finished, _ = ray.wait(list(waiting), num_returns=1)
            for reference in finished:
                ray.get(reference)
                done += len(waiting.pop(reference))
                report(done, len(images))
    seconds = time.perf_counter() - began
    merged = merge_stats([SourceStats.load(file) for file in files.values()])
    return merged, sum(map(len, left)) / seconds


def _check_same(folder: Path, made_with: dict[str, Any]) -> None:
    """Refuse parts that were made of other images, or in another way."""
    file = folder / "parts.json"
    if file.exists():
        found = read_json(file)
        other = [name for name, value in made_with.items() if found.get(name) != value]
        if other:
            raise StateError(
                f"The parts in {folder} were made with another {other[0]}; use the same, or remove them."
            )
    write_json(file, made_with)


def _make_part(images: Any, part: Sequence[int], file: Path, options: StatsOptions, here: Path) -> None:
    """One part, in a worker, written in full precision."""
    if here.is_dir():
        os.chdir(here)
    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device)
    prompts = trained_prompts(clip, options.prompts, family="maple")
    found = collect_stats(
        clip,
        prompts,
        images.take(part),
        layers=options.layers,
        per_class=options.per_class,
        batch=options.batch,
    )
    found.save(file, None)
