"""`load_dataset`: a data set of any kind from its name or path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from taps.data.dataset import Dataset
from taps.data.folder import load_folder
from taps.data.manifest import MANIFEST_SUFFIXES, load_manifest
from taps.data.names import normalised, read_names
from taps.data.sets import NamedSet, find_set, named_sets
from taps.data.sources import FolderSource, split_archive
from taps.data.survey import survey_set
from taps.errors import DataError, ImageError
from taps.registry import nearest


def load_dataset(
    name_or_path: str | Path,
    *,
    root: str | Path | None = None,
    classes: Sequence[str] | str | Path | None = None,
    split: str = "test",
) -> Dataset:
    """Load one of the named sets, a folder of class folders, an archive of one, tars, or a manifest.

    Args:
        name_or_path: The name of a set (`taps data list`), or a path: a folder, a zip or tar, a folder inside
            one (`pacs.zip/photo`), a folder of tars, a CSV or JSONL manifest.
        root: Folder that holds the named sets; the environment variable TAPS_DATA where absent.
        classes: Class names, or a text file of them, one a line; their order gives the labels.
        split: `test`, `val` or `train`, where the data set has them.
    """
    if split not in ("test", "val", "train"):
        raise DataError(f"Unknown split {split!r}: use test, val or train.")
    if not isinstance(name_or_path, str | Path):
        raise DataError(f"A data set is loaded by its name or its path, not by {repr(name_or_path)[:60]}.")
    named = find_set(str(name_or_path))
    path = Path(name_or_path).expanduser()
    base = _data_folder(root)
    if named is not None and (root is not None or not os.path.exists(path)):
        if base == Path():
            raise DataError(f"{named.name} was not found; give the data folder by --root or TAPS_DATA.")
        dataset = _load_named(named, base, split)
        return dataset if classes is None else _with_classes(dataset, read_names(classes))
    path = _find_path(path, base)
    if path.suffix.lower() in MANIFEST_SUFFIXES and path.is_file():
        return load_manifest(path, path.stem, classes)
    archive = split_archive(path)
    # `pacs` for pacs.zip, `pacs/photo` for a folder inside it, the last folder's name otherwise.
    name = "/".join([archive[0].stem, *archive[1]]) if archive else path.resolve().name
    return load_folder(path, name, classes, split)


def check_there(name_or_path: str | None) -> None:
    """Refuse a text that is neither a path nor a set's name, before slow imports."""
    if name_or_path is not None and find_set(name_or_path) is None:
        _find_path(Path(name_or_path).expanduser(), _data_folder(None))


def check_readable(dataset: Dataset) -> None:
    """Refuse images of which none can be read."""
    first = ""
    for index in range(len(dataset)):
        try:
            dataset.image(index)
        except (ImageError, DataError) as error:
            first = first or str(error)
        else:
            return
    raise DataError(f"None of the {len(dataset):,} images of {dataset.name} can be read. The first: {first}")


def _data_folder(root: str | Path | None) -> Path:
    return Path(root or os.environ.get("TAPS_DATA") or "").expanduser()


def _find_path(path: Path, base: Path) -> Path:
    """The path itself, or where it lies below the folder of data sets; it may lead into an archive."""
    for place in (path, base / path):
        if os.path.exists(place) or split_archive(place) is not None:
            return place
    raise DataError(
        f"{str(path)!r} is neither a folder nor a file, nor a name in `taps data list`: check the spelling."
        f"{nearest(str(path), named_sets())}"
    )


def _load_named(named: NamedSet, root: Path, split: str) -> Dataset:
    survey = survey_set(named, root, split)
    errors = [finding.text for finding in survey.findings if finding.level == "error"]
    if errors or survey.root is None or not survey.samples:
        more = f" ({len(errors) - 1} more problems: taps data check {named.id})" if len(errors) > 1 else ""
        raise DataError((errors or [f"{named.name}: no images were found."])[0] + more)
    samples, source = tuple(survey.samples), FolderSource(survey.root)
    return Dataset(named.name, survey.classes, samples, source, named.template, survey.kinds)


def _with_classes(dataset: Dataset, classes: tuple[str, ...]) -> Dataset:
    """A named set with the user's names for its classes: as many, in the same order, or a reordering."""
    if len(classes) != len(dataset.classes):
        raise DataError(f"{dataset.name} has {len(dataset.classes):,} classes, the list has {len(classes)}.")
    index = {normalised(name): i for i, name in enumerate(classes)}
    place = [index.get(normalised(name), -1) for name in dataset.classes]
    if sorted(place) != list(range(len(classes))):
        return replace(dataset, classes=classes)
    return dataset.relabelled(classes, dict(enumerate(place)))
