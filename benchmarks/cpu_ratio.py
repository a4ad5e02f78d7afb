"""How fast `taps predict`, `run` and `label` are on a CPU beside the bare encoder on the same images.

    python benchmarks/cpu_ratio.py --model pocket --threads 1 --rounds 5 --json ratio.json

The bare encoder gets pixels that are ready, as many views together as the command encodes. A ratio of 0.9
says that a tenth goes into everything else: reading, decoding, views, the head, answers, the record. Both
sides take turns in one process, after a few images of warming up. There are two ratios: of the clock, where
other cores may decode meanwhile, and of the processor's seconds over all threads, which other work on the
machine hardly changes. Images are JPEGs of 640 × 480.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from taps import load_clip
from taps.cli.run import PREFETCHED
from taps.data import Dataset, load_dataset
from taps.default import METHOD, QUICK, VIEWS
from taps.learner import Learner
from taps.model.clip import Clip
from taps.model.images.decode import load_image
from taps.model.images.views import make_views, sample_generator
from taps.process import keep_freed_memory
from taps.serve.folder import Folder, pool_settings
from taps.serve.service import Service, StreamConfig
from taps.serve.store import Store
from taps.streams.loop import follow
from taps.streams.options import RunOptions
from taps.streams.predict import predict_all
from taps.streams.run import open_run
from taps.study.bench.measure import photo

BATCH = 16  # of `taps predict`
Spent = tuple[float, float]
"""Seconds on the clock and of the processor."""
Row = dict[str, object]


def spent(work: Callable[[], object]) -> Spent:
    began = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def write_photos(folder: Path, count: int) -> Dataset:
    """Photographs of two classes."""
    for number in range(count):
        place = folder / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo(480, 640, number)).save(place / f"{number}.jpg", quality=90)
    return load_dataset(folder)


def bare(clip: Clip, together: int, times: int) -> Spent:
    """The encoder alone on so many ready images at a time."""
    size = clip.config.image_size
    pixels = torch.randint(0, 256, (together, 3, size, size), dtype=torch.uint8)

    def work() -> None:
        with torch.no_grad():
            for _ in range(times):
                clip.encode_image(clip.preprocess(pixels))

    return spent(work)


def predicting(clip: Clip, images: Dataset) -> Spent:
    """`taps predict`, its CSV left out."""
    learner = Learner(clip, images.classes, "zero_shot", allow_duplicates=True)
    places = {sample.path: index for index, sample in enumerate(images.samples)}
    return spent(lambda: list(predict_all(places, lambda key: images.image(places[key]), learner)))


def running(options: RunOptions) -> Spent:
    """`taps run`: the folder's names answer. A run counts its memory once, after its first image."""
    with (
        tempfile.TemporaryDirectory() as place,
        open_run(options, Path(place) / "run", resume=False) as session,
    ):
        total, running = len(session.stream), session.running
        follow(session, stop=lambda: running.position >= total // 3)
        share = 1 - running.position / total
        wall, processor = spent(lambda: follow(session, prefetched=PREFETCHED))
        return wall / share, processor / share


def labelling(clip: Clip, images: Dataset, views: int) -> Spent:
    """`taps label` while nobody has answered yet."""
    order, count = range(len(images)), len(images)
    settings = {"rate": 0.1, "expected": count, "views": views, **pool_settings(10, count)}
    config = StreamConfig("pets", list(images.classes), METHOD, settings, 0, deadline=None, hold=0.0)
    with tempfile.TemporaryDirectory() as place, Service(Store(place), clip) as service:
        folder = Folder(service, "pets", images, order, lambda t: images.samples[t].path)
        folder.begin(config, given=False, questions=10)
        return spent(lambda: folder.feed(lambda done: None))


def parts(clip: Clip, images: Dataset, views: int) -> dict[str, Callable[[], object]]:
    """What is around the encoder, by itself."""
    files = [images.read(index) for index in range(len(images))]
    pixels = [load_image(file) for file in files]

    def viewing(count: int) -> Callable[[], object]:
        how = {"views": count, **clip.config.framing}
        return lambda: [make_views(image, generator=sample_generator(0, 0), **how) for image in pixels]

    return {
        "decoding": lambda: [load_image(file) for file in files],
        "view 0": viewing(1),
        f"{views} views": viewing(views),
    }


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--pretrained", help="random, for an architecture without its weights")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--views", type=int, default=VIEWS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--give-back", action="store_true", help="freed memory, as the C library has it")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    given = parser.parse_args(words)
    torch.set_num_threads(given.threads)
    if not given.give_back:
        keep_freed_memory()  # as the commands do; for both sides
    clip = load_clip(given.model, pretrained=given.pretrained, device="cpu", dtype=given.dtype)
    with tempfile.TemporaryDirectory() as place:
        images = write_photos(Path(place), given.images)
        rows = measured(clip, images, given, place)
    if given.json:
        told = {name: value for name, value in vars(given).items() if name != "json"}
        given.json.write_text(json.dumps({"given": told, "rows": rows}, indent=1) + "\n")


def measured(clip: Clip, images: Dataset, given: argparse.Namespace, place: str) -> list[Row]:
    """A row for each command and each part; rounds in turns, the first left out."""
    count, quick, many = len(images), int(QUICK["views"]), given.views
    shared = {"model": given.model, "pretrained": given.pretrained, "device": "cpu", "dtype": given.dtype}

    def run_with(settings: dict[str, float]) -> Callable[[], Spent]:
        return lambda: running(RunOptions(place, **shared, settings=settings))

    together = max(size for size in range(1, BATCH + 1) if count % size == 0)
    commands: dict[str, tuple[int, int, Callable[[], Spent]]] = {
        "taps predict": (together, count // together, lambda: predicting(clip, images)),
        f"taps run, {many} views": (many, count, run_with({"views": many})),
        "taps run --quick": (quick, count, run_with(QUICK)),
        f"taps label, {many} views": (many, count, lambda: labelling(clip, images, many)),
    }
    pairs: dict[str, list[tuple[Spent, Spent]]] = {name: [] for name in commands}
    for _ in range(given.rounds + 1):
        for name, (size, times, work) in commands.items():
            pairs[name].append((bare(clip, size, times), work()))
    rows = [row_of(name, taken[1:], count) for name, taken in pairs.items()]
    for name, part in parts(clip, images, many).items():
        least = min(spent(part)[1] for _ in range(given.rounds + 1))
        rows.append({"what": name, "processor_ms": round(1000 * least / count, 2)})
    for row in rows:
        print(json.dumps(row), flush=True)
    return rows


def row_of(name: str, taken: list[tuple[Spent, Spent]], images: int) -> Row:
    """Medians over the rounds, and the ratios of every round."""
    row: Row = {"what": name}
    for place, clock in enumerate(("clock", "processor")):
        found = [[side[place] for side in pair] for pair in taken]
        both = np.median(found, axis=0) / images * 1000
        ratios = sorted(round(encoder / all_of_it, 3) for encoder, all_of_it in found)
        row |= {
            f"{clock}_ms": [round(float(ms), 2) for ms in both],
            f"{clock}_ratio": float(np.median(ratios)),
        }
        row[f"{clock}_ratios"] = ratios
    return row


if __name__ == "__main__":
    main()
