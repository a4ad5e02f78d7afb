"""One door to every kind of data set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from taps.data.dataset import Dataset
from taps.data.folder import load_folder
from taps.data.manifest import MANIFEST_SUFFIXES, load_manifest
from taps.errors import DataError


def load_dataset(
    name_or_path: str | Path,
    *,
    root: str | Path | None = None,
    classes: Sequence[str] | str | Path | None = None,
    split: str = "test",
) -> Dataset:
    """Load one of the named sets, a folder of class folders, a zip of one, or a manifest.

    Args:
        name_or_path: The name of a set (`taps data list`), or a path: a folder, a zip, a folder inside a zip
            (`pacs.zip/photo`), a CSV or JSONL manifest.
        root: Folder that holds the named sets; the environment variable TAPS_DATA where absent.
        classes: Class names, or a text file of them, one a line; their order gives the labels.
        split: `test`, `val` or `train`, where the data set has them.
    """
    if split not in ("test", "val", "train"):
        raise DataError(f"There is no split {split!r}: use test, val or train.")
    root = root or os.environ.get("TAPS_DATA")
    path = Path(name_or_path).expanduser()
    if root is not None and not _exists(path) and _exists(Path(root).expanduser() / path):
        path = Path(root).expanduser() / path
    if not _exists(path):
        raise DataError(f"There is no data set {str(name_or_path)!r}: it is no path and no name of a set.")
    if path.suffix.lower() in MANIFEST_SUFFIXES and path.is_file():
        return load_manifest(path, path.stem, classes)
    return load_folder(path, _short_name(path), classes, split)


def _exists(path: Path) -> bool:
    """Whether the path leads to something, if only to a zip on its way."""
    return path.exists() or any(place.suffix.lower() == ".zip" and place.is_file() for place in path.parents)


def _short_name(path: Path) -> str:
    """`pacs` for pacs.zip, `pacs/photo` for a folder inside it, the last folder's name otherwise."""
    for depth, place in enumerate([path, *path.parents]):
        if place.suffix.lower() == ".zip":
            return "/".join([place.stem, *path.parts[len(path.parts) - depth :]])
    return path.resolve().name
