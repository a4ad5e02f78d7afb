"""Images a second of several processes that share one device: source statistics, and streams of `taps`.

    PYTHONPATH=src python benchmarks/packed.py --processes 1,4,1x4 --json packed.json

4 is what `--gpus-per-run 0.25` does on a cluster: each process has a model of its own. 1x4 is one process and
one model, with a thread for each of four streams. All measure at the same time, statistics from JPEG files
of 375×500 in memory (decoding included, float32, as `taps stats` computes), streams from decoded images (64
views, bfloat16).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from taps.session.process import for_children, threads_each

PHOTOS = 64


class InMemory:
    """A source of a few JPEG files."""

    def __init__(self) -> None:
        from stream import jpeg

        from taps.bench.measure import photo

        self.files = [jpeg(photo(375, 500, seed)) for seed in range(PHOTOS)]

    def read(self, key: str) -> bytes:
        return self.files[int(key) % PHOTOS]


def rate_of(work: Callable[[], int], seconds: float) -> float:
    """Images a second of something that says how many it has done."""
    began, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < seconds:
        done += work()
    return done / spent


def measure(asked: argparse.Namespace, threads: int, gate: Any, found: Any) -> None:
    """One process: both rates, each begun when all processes are ready."""
    import torch
    from pool import make_streams

    from taps.clip import load_clip
    from taps.data import Dataset, Sample
    from taps.training.stats import collect_stats

    rates: dict[str, float] = {}
    try:
        classes = tuple(f"class {number}" for number in range(PHOTOS))
        samples = tuple(Sample(str(number), number % PHOTOS) for number in range(256))
        images = Dataset("photos", classes, samples, InMemory())
        clip = load_clip(asked.model, pretrained=asked.pretrained, device=asked.device)

        def make_stats() -> int:
            return collect_stats(clip, None, images, per_class=True).count

        make_stats()
        gate.wait(300)
        rates["statistics"] = rate_of(make_stats, asked.seconds)
        half = None if clip.device.type == "cpu" else "bf16"
        model = load_clip(asked.model, pretrained=asked.pretrained, device=asked.device, dtype=half)
        learners = make_streams(model, threads, "taps", asked.classes, asked.views)
        pixels = [images.image(index) for index in range(8)]

        def rate_of_stream(learner: Any) -> float:
            return rate_of(lambda: len([learner.predict_one(each) for each in pixels]), asked.seconds)

        for learner in learners:
            learner.predict_one(pixels[0])
        gate.wait(300)
        with ThreadPoolExecutor(threads) as pool:
            rates["streams"] = sum(pool.map(rate_of_stream, learners))
    except BaseException:
        gate.abort()
        raise
    finally:
        rates["gib"] = torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0
        found.put(rates)


def together(asked: argparse.Namespace, count: int, threads: int) -> dict[str, float]:
    """The sums over so many processes at once, with so many streams each."""
    context = multiprocessing.get_context("spawn")
    gate, found = context.Barrier(count), context.Queue()
    workers = [context.Process(target=measure, args=(asked, threads, gate, found)) for _ in range(count)]
    with for_children(threads_each(count * threads)):
        for worker in workers:
            worker.start()
    rates = [found.get() for _ in workers]
    for worker in workers:
        worker.join()
    names = ("statistics", "streams", "gib")
    about = {"processes": count, "threads": threads}
    return about | {name: round(sum(rate[name] for rate in rates), 1) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="ViT-B-16")
    parser.add_argument("--pretrained", default="random")
    parser.add_argument("--device")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--views", type=int, default=64)
    parser.add_argument("--processes", default="1,4,1x4", help="Or PROCESSESxSTREAMS.")
    parser.add_argument("--seconds", type=float, default=10.0, help="Of each measurement.")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.model in ("tiny", "pocket"):
        asked.pretrained = None
    rows = []
    for each in asked.processes.split(","):
        count, _, threads = each.partition("x")
        rows.append(together(asked, int(count), int(threads or 1)))
        print(json.dumps(rows[-1]), flush=True)
        if asked.json:
            about = {"model": asked.model, "cores": os.cpu_count(), "seconds": asked.seconds}
            asked.json.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
