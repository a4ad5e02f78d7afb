"""Images sorted into a folder for each class, those that are not sure apart."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from taps.data.dataset import Dataset
from taps.data.sources import FolderSource
from taps.errors import DataError
from taps.stream.record import read_predictions

UNSURE = "not-sure"


def place_of(dataset: Dataset, key: str) -> Path | None:
    """Where an image lies on the disk; None where it is inside a zip."""
    source = dataset.source
    return (source.base / key).absolute() if isinstance(source, FolderSource) else None


def sort_image(
    dataset: Dataset, key: str, label: str, probability: float, into: Path, *, sure: float, link: bool
) -> Path:
    """Copy one image, or link to it, below the folder of its class; its new path.

    Args:
        dataset: Where it comes from.
        key: Its path there; subfolders become part of the name, so that no image replaces another.
        label: Its class.
        probability: Of that class; below `sure` the image goes under `not-sure/` first.
        into: The folder that is sorted into.
        sure: The least probability of an image that is put with its class.
        link: A symbolic link instead of a copy, for images on the disk.
    """
    folder = into / UNSURE / _name(label) if probability < sure else into / _name(label)
    target = folder / key.replace("/", "__")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        place = place_of(dataset, key)
        if place is None:
            target.write_bytes(dataset.source.read(key))
        elif link:
            os.symlink(place, target)
        else:
            shutil.copy2(place, target)
    except OSError as error:
        raise DataError(f"{target} cannot be written ({error.strerror}); choose another folder.") from error
    return target


def sort_run(folder: Path, dataset: Dataset, into: Path, *, sure: float, link: bool) -> int:
    """Sort all images of a run by its predictions, or by the answer where there is one; how many.

    Args:
        folder: Of the run.
        dataset: Its images.
        into: The folder that is sorted into.
        sure: The least probability of an image that is put with its class.
        link: Links instead of copies.
    """
    rows = [row for row in read_predictions(folder) if row["predicted"]]
    for row in rows:
        answered = row["asked"] == "1" and row["label"]
        label, probability = (
            (row["label"], 1.0) if answered else (row["predicted"], float(row["probability"]))
        )
        sort_image(dataset, row["path"], label, probability, into, sure=sure, link=link)
    return len(rows)


def _name(label: str) -> str:
    """A class name as a folder's name.

    >>> _name("cat/dog"), _name("..")
    ('cat_dog', '_')
    """
    return label.replace("/", "_").replace("\\", "_").replace("\0", "_").strip(". ") or "_"
