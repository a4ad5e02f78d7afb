"""What a run says of each image, in the form other tools are told it; and what they say, back again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from taps.data import Dataset
from taps.data.dataset import Sample
from taps.errors import DataError, StateError
from taps.files import read_json
from taps.session.record import SPEC, read_predictions, read_rows
from taps.session.row import Row


def read_run(folder: str | Path) -> list[Row]:
    """The images of a run (`taps run`), in the order they came; paths in full, where they lie in a folder."""
    folder = Path(folder)
    try:
        spec, rows, cells = read_json(folder / SPEC), read_rows(folder), read_predictions(folder)
    except (OSError, StateError) as error:
        raise DataError(f"{folder} is not the folder of a run ({error}).") from error
    images = Path(spec["options"]["folder"])
    base = images if images.is_dir() else images.parent if images.suffix in (".csv", ".jsonl") else None
    sure = {int(row["t"]): float(row["probability"]) for row in cells}  # the log of 0.2 has none
    return [
        replace(
            row,
            name=str(base / row.name) if base else row.name,
            top=row.top or [[row.label, sure[row.seq]]],
        )
        for row in rows
        if row.seq in sure
    ]


def with_labels(dataset: Dataset, answers: Mapping[str, str]) -> Dataset:
    """The same images with the labels that others gave; those without one lose theirs.

    Args:
        dataset: The images.
        answers: Class of each image, by its path: in full, or the end of it, as long as one image has it.
    """
    keys = [sample.key for sample in dataset.samples]
    places = {name: index for index, name in enumerate(dataset.classes)}
    found: dict[int, int] = {}
    for path, label in answers.items():
        if label not in places:
            raise DataError(f"{path} is labelled {label!r}, which is not one of the {len(places)} classes.")
        found[find_key(path, keys)] = places[label]
    samples = (replace(sample, label=found.get(index)) for index, sample in enumerate(dataset.samples))
    return replace(dataset, samples=tuple[Sample, ...](samples))


def find_key(path: str, keys: list[str]) -> int:
    """Which image of a data set a path means: that with the longest common end, if it is one only."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    for length in range(len(parts), 0, -1):
        tail = "/".join(parts[-length:])
        found = [index for index, key in enumerate(keys) if key == tail or key.endswith("/" + tail)]
        if len(found) == 1:
            return found[0]
        if found:
            raise DataError(f"{path} could be {len(found)} images; give more of its path.")
    raise DataError(f"{path} is not one of the {len(keys)} images.")
