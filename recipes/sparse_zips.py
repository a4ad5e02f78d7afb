"""Smaller copies of the zips for a run elsewhere: only images that will be looked at keep their content.

    python recipes/sparse_zips.py --data DIR --to SMALLER --limit 1000 --seeds 1,2,3

Every file stays in its list, if empty, so that the seeded orders are those of the whole zips and the results
are the same to the bit.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

from taps.data import stream_order
from taps.errors import TapsError
from taps.study.evaluate.jobs import StreamSpec
from taps.study.evaluate.plan import open_streams
from taps.study.paper.parts import PARTS
from taps.study.paper.plan import PaperOptions, streams_of


def used_members(streams: list[StreamSpec], seeds: list[int], limit: int) -> dict[Path, set[str]]:
    """For each zip the names inside it that the streams will read."""
    used: dict[Path, set[str]] = {}
    for stream, dataset in open_streams(streams):
        path = Path(stream.dataset)
        archive = next(place for place in (path, *path.parents) if place.suffix == ".zip")
        inner = path.relative_to(archive).as_posix()
        with zipfile.ZipFile(archive) as file:
            names = set(file.namelist())
        for seed in seeds:
            for index in stream_order(len(dataset), seed, limit).tolist():
                key = dataset.samples[index].path
                name = next((n for n in (key, f"{inner}/{key}") if n in names), None)
                if name is None:
                    raise TapsError(f"{key} is not found in {archive}.")
                used.setdefault(archive, set()).add(name)
    return used


def thin(source: Path, target: Path, used: set[str]) -> None:
    """Copy a zip; files that are not used become empty."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) if name in used else b"")


def run() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--seeds", default="1,2,3")
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    seeds = [int(seed) for seed in args.seeds.split(",")]
    options = PaperOptions(root=args.data)
    streams = [stream for name in ("table2", "table3") for stream in streams_of(options, PARTS[name])]
    for archive, used in used_members(streams, seeds, args.limit).items():
        thin(archive, args.to / archive.name, used)
        size = (args.to / archive.name).stat().st_size / 1e6
        print(f"{args.to / archive.name}: {len(used):,} images, {size:.1f} MB")


if __name__ == "__main__":
    run()
