"""Images are sorted into a folder for each class; uncertain ones apart.

`sorted.csv` in the target lists each copy with its class, its image, its size and its digest. A copy is moved
when the class of its image changes, if it is as it was written. All other files there stay as they are.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import NamedTuple

from taps import disk
from taps.data.dataset import Dataset
from taps.data.sources import FolderSource
from taps.errors import DataError, SettingsError
from taps.files import csv_line, csv_rows
from taps.streams.class_folders import ClassFolders, shortened
from taps.streams.options import SortOptions
from taps.streams.record import read_predictions

UNSURE = "not-sure"
TABLE = "sorted.csv"
COLUMNS = ("folder", "class", "file", "image", "size", "sha256")


class Copy(NamedTuple):
    """A row of the table; `size` and `sha256` are of the bytes, or of the path that a link leads to."""

    folder: str
    label: str
    file: str
    image: str
    size: str
    sha256: str

    @property
    def mark(self) -> tuple[str, str]:
        return self.size, self.sha256


def place_of(dataset: Dataset, key: str) -> Path | None:
    """Where an image lies on the disk; None where it is inside a zip."""
    source = dataset.source
    return (source.base / key).absolute() if isinstance(source, FolderSource) else None


def check_sorting(folder: str | Path | None, options: SortOptions) -> None:
    """Refuse a target among the images, where copies would be images, too, or among other files of ours."""
    into = options.sort_into
    if into is None:
        return
    images = None if folder is None else Path(folder).expanduser()
    if images is not None and (_holds(images, into) or (images.is_dir() and _holds(into, images))):
        raise SettingsError(
            f"--sort-into {into} is, holds or is inside the folder of images; choose one outside of it."
        )
    if os.path.lexists(into) and not into.is_dir():
        raise SettingsError(f"--sort-into {into} is no folder; choose another.")
    if disk.is_ours(into / TABLE):
        raise SettingsError(f"--sort-into {into} is inside a run or a store; choose another folder.")
    _read_table(into / TABLE)


def _holds(folder: Path, other: Path) -> bool:
    """Whether a folder is another one or has it below, under whichever name."""
    place = other.resolve()
    there = [each for each in (place, *place.parents) if each.exists()]
    return folder.exists() and any(folder.samefile(each) for each in there)


def _read_table(table: Path) -> list[Copy]:
    """What was sorted; rows that are cut off are left out."""
    if not os.path.lexists(table):
        return []
    try:
        text = table.read_bytes().decode("utf-8", "surrogateescape")
        columns, *rows = csv_rows(io.StringIO(text[: text.rfind("\n") + 1], newline=""))
    except (OSError, ValueError, csv.Error):
        columns, rows = [], []
    if tuple(columns) != COLUMNS:
        raise SettingsError(f"{table} is no table of sorted images; choose another folder to sort into.")
    return [Copy(*row) for row in rows if len(row) == len(COLUMNS)]


class Sorter:
    """Puts images into the folders of their classes, and notes in a table what it put where.

    Args:
        dataset: The images.
        into: The target.
        link: Whether to link instead of copying.
        sure: Images below this probability are put apart.
    """

    def __init__(self, dataset: Dataset, into: Path, *, link: bool = False, sure: float = 0.0) -> None:
        self.dataset, self.into, self.link, self.sure = dataset, into, link, sure
        self.folders = ClassFolders([UNSURE, TABLE])
        self.copies: dict[str, Copy] = {}  # the last one of each image
        for copy in _read_table(into / TABLE):
            self.copies[copy.image] = copy
            self.folders.put(copy.label, copy.folder)

    def put(self, key: str, label: str, probability: float) -> Path:
        """Copy an image, or link to it, into the folder of its class; where it is now.

        Its copy in the folder of an earlier class is removed. Subfolders become part of its name; where
        something has this name already, the image gets another.
        """
        place, name = place_of(self.dataset, key), self.folders[label]
        folder = self.into / UNSURE / name if probability < self.sure else self.into / name
        linked = self.link and place is not None
        data = os.fsencode(str(place)) if linked else self.dataset.source.read(key)
        image = str(place or f"{getattr(self.dataset.source, 'path', self.dataset.name)}/{key}")
        mark = str(len(data)), hashlib.sha256(data).hexdigest()
        old = self.copies.get(image)
        if (
            old is not None
            and old.mark == mark == disk.mark_of(self.into / old.file)
            and (self.into / old.file).parent == folder
        ):
            return self.into / old.file
        try:
            disk.make_folder(folder)
            target = disk.free_name(folder, _flat(key))
            copy = Copy(name, label, target.relative_to(self.into).as_posix(), image, *mark)
            disk.add_copy(target, data, place, lambda: self._note(copy), link=linked)
            if old is not None:
                disk.remove_known(self.into / old.file, lambda path: disk.mark_of(path) == old.mark)
        except OSError as error:
            raise DataError(
                f"{folder} cannot be written ({error.strerror}); choose another folder."
            ) from error
        return target

    def _note(self, copy: Copy) -> None:
        """Add a row to the table."""
        head, row = (csv_line(each).encode("utf-8", "surrogateescape") for each in (COLUMNS, copy))
        disk.add_lines(self.into / TABLE, head, row)
        self.copies[copy.image] = copy


def sorter(dataset: Dataset, options: SortOptions) -> Sorter | None:
    """Sorts the images as the options say; None where they do not."""
    if options.sort_into is None:
        return None
    return Sorter(dataset, options.sort_into, link=options.link, sure=options.sure)


def sort_all(dataset: Dataset, images: Iterable[tuple[str, str, float]], options: SortOptions) -> None:
    """Sort images, given by path, class and probability."""
    if (to := sorter(dataset, options)) is not None:
        for image in images:
            to.put(*image)


def sort_run(
    folder: Path, dataset: Dataset, options: SortOptions, without: Container[str] = frozenset()
) -> None:
    """Sort the images of a run, but those `without`: by the answer, or by the last prediction."""

    def known(row: dict[str, str]) -> tuple[str, str, float]:
        if row["asked"] == "1" and row["truth"]:
            return row["path"], row["truth"], 1.0
        if row.get("final"):
            return row["path"], row["final"], float(row["final_probability"])
        return row["path"], row["predicted"], float(row["probability"])

    rows = [row for row in read_predictions(folder) if row["path"] not in without]
    sort_all(dataset, map(known, rows), options)


def _flat(key: str) -> str:
    """A path as a file's name.

    >>> _flat("cats/1.png")
    'cats__1.png'
    """
    stem, dot, suffix = key.replace("/", "__").rpartition(".")
    return f"{shortened(stem)}{dot}{suffix}"
