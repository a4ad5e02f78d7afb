"""Source statistics in parts on a Ray cluster; finished parts are kept, and merge exactly in any order."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from taps.clip import Clip, load_clip
from taps.cluster.connect import DEFAULT, connected
from taps.cluster.machines import Origin, Resources, origin, this_machine, why_unfit
from taps.data import Dataset
from taps.errors import DataError, ImageError, StateError, TapsError
from taps.files import read_json, write_json
from taps.prompts import Prompts
from taps.prompts.choose import trained_prompts
from taps.prompts.source import SourceStats, merge_stats
from taps.training.options import StatsCluster, StatsOptions
from taps.training.stats import NothingReadableError, collect_stats

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
    """Statistics of a whole set by Ray Data, part by part.

    Args:
        cluster: Where, and how many parts.
        images: The source set; every machine must see its files at the same paths.
        options: Of every part.
        folder: Of the parts, on a disk that all machines share; finished parts are kept.
        report: Called with images done and images in all.
    """
    if folder.is_file():
        raise StateError(
            f"{folder} holds a pass that was started without --ray; go on without it, or remove it."
        )
    folder.mkdir(parents=True, exist_ok=True)
    made_with = asdict(options) | {"layers": list(options.layers)}
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
            shutil.rmtree(folder)
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
        resources, given = Resources(ray, cluster, log), (ray.put(images), options, folder.resolve(), here)
        left = {part: _row(part, images) for part in parts}
        while left:
            try:
                for row in _by_actors(list(left.values()), given, resources):
                    if row["unfit"]:
                        resources.avoid(row["machine"], row["unfit"])
                    else:
                        part = range(row["start"], row["stop"])
                        del left[part]
                        yield part
            except ray.exceptions.RayError as error:
                if not (unfit := why_unfit(error)):
                    raise
                resources.avoid(*unfit)
            resources.check()


def _by_actors(
    rows: list[dict[str, Any]], given: tuple[Any, ...], resources: Resources
) -> Iterator[dict[str, Any]]:
    """The rows as `PartMaker` returns them, on machines that are not known to be unfit."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # of what goes wrong the last line is enough
    ray.data.DataContext.get_current().enable_progress_bars = False  # there is one of our own
    places = min(len(rows), max(1, resources.places()))
    made = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        PartMaker,  # type: ignore[arg-type]
        fn_constructor_args=given,
        compute=ray.data.ActorPoolStrategy(
            min_size=1, max_size=len(rows), initial_size=places, max_tasks_in_flight_per_actor=1
        ),
        **resources.options(),
    )
    yield from made.iter_rows()


def _row(part: range, images: Dataset) -> dict[str, Any]:
    """A part as `PartMaker` gets it; an image that is readable here must be readable there, too."""
    row = {"start": part.start, "stop": part.stop, "begins": True}
    try:
        images.image(part.start)
    except (ImageError, DataError):
        row["begins"] = False
    return row


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


class PartMaker:
    """Makes parts in a worker of the cluster, one after the other with the same model."""

    def __init__(self, images: Any, options: StatsOptions, folder: Path, origin: Origin) -> None:
        import ray

        origin.enter()
        self.images, self.options, self.folder, self.origin = ray.get(images), options, folder, origin

    @cached_property
    def model(self) -> tuple[Clip, Prompts]:
        """The model and its prompts; not loaded by the constructor, whose failure may end Ray Data's pass."""
        options = self.options
        clip = load_clip(options.model, pretrained=options.pretrained, device=options.device)
        return clip, trained_prompts(clip, options.prompts, family="maple")

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        part = range(row["start"], row["stop"])
        try:
            self.origin.check()
            if row["begins"]:
                self.images.image(part.start)
            found = collect_stats(
                *self.model,
                self.images.take(part),
                layers=self.options.layers,
                per_class=self.options.per_class,
                batch=self.options.batch,
            )
            found.save(_file(self.folder, part), None)
        except NothingReadableError:
            pass  # such as a shard that is damaged: its images are missing, and are counted in the end
        except TapsError as error:
            return row | {"machine": this_machine(), "unfit": str(error)}
        return row | {"machine": "", "unfit": ""}
