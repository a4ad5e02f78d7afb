"""What a run says of each image, in the form other tools are told it; and what they say, back again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from taps.data import Dataset
from taps.data.dataset import Sample
from taps.errors import DataError, StateError
from taps.files import read_json
from taps.stream.record import SPEC, read_events, read_predictions


@dataclass(frozen=True)
class Judged:
    """One image of a run.

    Attributes:
        path: In full, where the images lie in a folder; else as the run names it.
        predicted: Class, by name.
        probability: Of that class.
        asked: Whether the expert was asked.
        answer: The class the expert gave; empty where there is none.
    """

    path: str
    predicted: str
    probability: float
    asked: bool
    answer: str = ""


def read_run(folder: str | Path) -> list[Judged]:
    """The images of a run (`taps run`), in the order they came."""
    folder = Path(folder)
    try:
        spec, rows = read_json(folder / SPEC), read_predictions(folder)
    except (OSError, StateError) as error:
        raise DataError(f"{folder} is not the folder of a run ({error}).") from error
    images = Path(spec["options"]["folder"])
    base = images if images.is_dir() else images.parent if images.suffix in (".csv", ".jsonl") else None
    said = [each for each in read_events(folder) if each["event"] in ("answered", "undone")]
    answers = {each["t"]: each.get("label", "") for each in said}  # the last one counts
    return [
        Judged(
            str(base / row["path"]) if base else row["path"],
            row["predicted"],
            float(row["probability"]),
            row["asked"] == "1",
            answers.get(int(row["t"]), ""),
        )
        for row in rows
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
            raise DataError(f"{path} is labelled {label!r}, which is none of the {len(places)} classes.")
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
    raise DataError(f"{path} is none of the {len(keys)} images.")
