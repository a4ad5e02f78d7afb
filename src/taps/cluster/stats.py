"""Source statistics in parts on a Ray cluster; finished parts are kept, and merge exactly in any order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from taps.cluster.connect import DEFAULT, connected
from taps.cluster.machines import Origin, Resources, origin, this_machine
from taps.cluster.tasks import LOST, RETRIES, UNFIT, Tasks
from taps.data import Dataset
from taps.disk import claim, dissolve
from taps.errors import DataError, ImageError, StateError, TapsError
from taps.files import holds, read_json, write_json
from taps.model.clip import Clip, load_clip
from taps.model.prompts import Prompts
from taps.model.prompts.choose import vision_prompts
from taps.model.prompts.source import SourceStats, merge_stats
from taps.study.training.options import PARTS, StatsCluster, StatsOptions
from taps.study.training.stats import NothingReadableError, collect_stats, parse_layers

log = logging.getLogger("taps")


def split_evenly(count: int, parts: int) -> list[range]:
    """Consecutive ranges whose lengths differ by at most one; none is empty.

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
) -> SourceStats:
    """Statistics of a whole set, part by part; every machine must see its files at the same paths.

    Parts are written to `folder`, on a disk that all machines share; finished ones are kept. `report` is
    called with images done and images in all.
    """
    if folder.is_file():
        raise StateError(
            f"{folder} holds a pass that was started without --ray; go on without it, or remove it."
        )
    claim(folder, lambda folder: holds(folder / "parts.json", "data"))
    made_with = asdict(options)
    _check_same(folder, made_with | {"data": images.name, "images": len(images)})
    files = {part: _file(folder, part) for part in split_evenly(len(images), cluster.parts)}
    left = [part for part, file in files.items() if not file.exists()]
    done = len(images) - sum(map(len, left))
    report(done, len(images))
    try:
        for part in _made_parts(left, images, options, folder, cluster) if left else ():
            done += len(part)
            report(done, len(images))
    finally:
        if not any(folder.glob("*.safetensors")):
            dissolve(folder, *PARTS)
    made = [SourceStats.load(file) for file in files.values() if file.exists()]
    if not made:
        raise NothingReadableError(f"{images.name} has no readable image; statistics need some.")
    merged = merge_stats(made)
    if merged.count < len(images):
        log.warning("%d images could not be read and were left out.", len(images) - merged.count)
    return merged


def _file(folder: Path, part: range) -> Path:
    return folder / f"{part.start}-{part.stop}.safetensors"


def _made_parts(
    parts: Sequence[range], images: Dataset, options: StatsOptions, folder: Path, cluster: StatsCluster
) -> Iterator[range]:
    """Each part, as soon as its file is written."""
    with connected(cluster.ray or DEFAULT, cluster) as ray, origin(folder) as here:
        tasks = Tasks(
            Resources(ray, cluster, log),
            make_part,
            [
                (
                    images.take(part),
                    _readable(images, part.start),
                    options,
                    _file(folder.resolve(), part),
                    here,
                )
                for part in parts
            ],
        )
        while tasks.running:
            for index, (what, value) in tasks.ended():
                if what == LOST:
                    raise StateError(f"A worker was lost {RETRIES + 1} times ({value}); `--resume` goes on.")
                yield parts[index]


def _readable(images: Dataset, index: int) -> bool:
    try:
        images.image(index)
    except (ImageError, DataError):
        return False
    return True


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


def make_part(
    images: Dataset, readable: bool, options: StatsOptions, file: Path, origin: Origin
) -> tuple[str, Any]:
    """Write the file of a part on a machine of the cluster, in full precision.

    A first image that is `readable` where the command was typed must be readable here, too.
    """
    origin.enter()
    try:
        origin.check()
        if readable:
            images.image(0)
        clip, prompts = _model(options)
        layers = parse_layers(options.layers, clip)
        found = collect_stats(
            clip, prompts, images, layers=layers, per_class=options.per_class, batch=options.batch
        )
        found.save(file, None)
    except NothingReadableError:
        pass  # such as a damaged shard: its images are missing, and are counted in the end
    except TapsError as error:
        return UNFIT, (this_machine(), str(error))
    return "done", None


@lru_cache(maxsize=1)
def _model(options: StatsOptions) -> tuple[Clip, Prompts]:
    """The model and its prompts, loaded once for all parts of a process."""
    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device)
    return clip, vision_prompts(clip, options.prompts)
