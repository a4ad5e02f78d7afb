"""Data sets in shards: which files they are, what holds them, and how their classes are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from taps.data import names
from taps.data.sources import FolderSource, ZipSource, is_hidden, is_image, split_archive
from taps.data.tars import TarSource, open_tars
from taps.errors import DataError

SPLITS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing", "val", "valid", "validation"),
}
"""How parts of a data set are called. Many public sets call the part with labels to test on `val`."""
CLASSNAMES = "classnames.txt"


def open_source(path: Path, split: str = "test") -> FolderSource | ZipSource | TarSource:
    """What holds the files at a path: a folder, a folder of tars, an archive, or a folder inside one."""
    if path.is_dir():
        tars = find_shards(path, ".tar", split)
        return open_tars(tars) if tars else FolderSource(path)
    found = split_archive(path)
    if found is None:
        raise DataError(f"{path} is neither a folder nor a zip or a tar: check the path.")
    place, inside = found
    prefix = "".join(f"{part}/" for part in inside)
    zipped = place.suffix.lower() == ".zip"
    source = ZipSource(place, prefix) if zipped else open_tars([place], prefix)
    if inside and not any(name.startswith(prefix) for name in source.names()):
        tops = sorted({name.split("/")[0] for name in source.names() if "/" in name})
        raise DataError(
            f"{place} has no folder {'/'.join(inside)}: it has {', '.join(tops[:8]) or 'no folders'}."
        )
    return source


def find_shards(path: Path, ending: str, split: str) -> list[Path]:
    """The file itself, or a folder's files of one kind; only those of the split where their names tell it.

    They may lie in the folder, or in `data` or the folder of the split below it.
    """
    if path.is_file():
        return [path] if path.suffix.lower() == ending else []
    for folder in (path, path / "data", *(path / name for name in SPLITS[split])):
        if found := _shards_in(folder, ending):
            return next((part for name in SPLITS[split] if (part := _named(found, name))), found)
    return []


def _shards_in(folder: Path, ending: str) -> list[Path]:
    """Files of one kind, unless folders or images lie beside them: then those are the data set."""
    children = sorted(folder.iterdir()) if folder.is_dir() else []
    others = (is_image(child.name) or (child.is_dir() and not is_hidden(child.name)) for child in children)
    found = [child for child in children if child.suffix.lower() == ending and not is_hidden(child.name)]
    return [] if not found or any(others) else found


def _named(files: Sequence[Path], split: str) -> list[Path]:
    """Files such as train-00000-of-00042."""
    return [file for file in files if file.stem.lower().partition("-")[0] == split]


def class_list(classes: Sequence[str] | str | Path | None, path: Path) -> tuple[str, ...] | None:
    """The class names given, or those of `classnames.txt` beside the shards or one folder above."""
    if classes is not None:
        return names.read_names(classes)
    folder = path if path.is_dir() else path.parent
    beside = [place / CLASSNAMES for place in (folder, folder.parent) if (place / CLASSNAMES).is_file()]
    return names.read_names(beside[0]) if beside else None
