"""Folders of images, on disk or in an archive, where a part of each path is the class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from taps.data import names
from taps.data.dataset import Dataset, Sample
from taps.data.sources import SPLITS, Listing, kinds_text, open_source
from taps.errors import DataError

OWN_OUTPUT = ("runs", "taps-demo")  # folders that commands write into the current one


def load_folder(
    path: Path, name: str, classes: Sequence[str] | str | Path | None = None, split: str = "test"
) -> Dataset:
    """Load a folder, an archive, or a folder inside one: `class/image`, `domain/class/image`, or flat."""
    source = open_source(path, split)
    listing = source.listing()
    if not listing.images:
        others = f", but {kinds_text(listing.kinds)}" if listing.kinds else ""
        raise DataError(f"{path} holds no images{others}: check the path (layouts: docs/data.md).")
    base, level = find_layout(listing, split)
    inside = [parts for parts in listing.images if parts[: len(base)] == base]
    given = None if classes is None else names.read_names(classes)
    if given and level == 1:
        tops = {names.normalised(parts[len(base)]) for parts in inside}
        if tops <= {names.normalised(each) for each in given}:
            level = 0  # the list says that the upper folders are the classes, not domains
    at = len(base) + (level or 0)
    # The class of pictures that lie beside the class folders is unknown.
    labelled = [parts for parts in inside if len(parts) > at + 1]
    counts = Counter(parts[at] for parts in labelled)
    if level is None or (given and not _labels(sorted(counts), given)):
        # There are no folders, or they have nothing to do with the classes: years, say, or cameras.
        samples = tuple(Sample("/".join(parts), None) for parts in inside)
        return Dataset(name, given or (), samples, source, skipped_kinds=listing.kinds)
    _refuse_empty_classes(listing, base, at, set(counts), path)
    class_list, label_of = _number_folders(counts, given, path)
    used = inside if given else labelled
    samples = tuple(
        Sample("/".join(parts), label_of[parts[at]], parts[at - 1] if level == 1 else "")
        if len(parts) > at + 1
        else Sample("/".join(parts), None)
        for parts in used
    )
    kinds = listing.kinds + Counter({"beside the class folders": len(inside) - len(used)})
    return Dataset(name, class_list, samples, source, skipped_kinds=kinds)


def find_layout(listing: Listing, split: str = "test") -> tuple[tuple[str, ...], int | None]:
    """Tell `class/image`, `domain/class/image` and a flat folder apart by the depth of the images.

    A folder that alone wraps everything is looked through, and of `train`, `val` and `test` beside each other
    the one of the split is taken.

    Returns:
        Path parts of the folder that holds the class folders (or the domains); and which part below it is the
        class, None for a flat folder.
    """
    base: tuple[str, ...] = ()
    while True:
        below = [parts[len(base) :] for parts in listing.images if parts[: len(base)] == base]
        depths = {len(parts) - 1 for parts in below}
        if depths == {0}:
            return base, None
        tops = sorted({parts[0] for parts in below if len(parts) > 1})
        # In `class/images/x.jpg` the second level is the same for every class.
        one_inner = depths == {2} and len({parts[1] for parts in below}) == 1
        part = _split_folder(tops, split)
        if part is not None:
            base = (*base, part)
        elif len(tops) == 1 and min(depths) >= 2 and not one_inner:
            base = (*base, tops[0])
        else:
            return base, 1 if depths == {2} and not names.are_wnids(tops) and not one_inner else 0


def _split_folder(tops: Sequence[str], split: str) -> str | None:
    """The folder of the wanted split, where the folders are nothing but splits."""
    known = {name for group in SPLITS.values() for name in group}
    lower = {top.lower(): top for top in tops}
    if not tops or not set(lower) <= known:
        return None
    wanted = [lower[name] for name in SPLITS[split] if name in lower]
    if not wanted:
        raise DataError(f"No folder found for the split {split!r}, only {names.shown(list(tops))}.")
    return wanted[0]


def _refuse_empty_classes(
    listing: Listing, base: tuple[str, ...], at: int, filled: set[str], path: Path
) -> None:
    """A class folder without images is a copy that stopped half-way, or not a class."""
    found = {
        parts[-1]
        for parts in listing.folders
        if len(parts) == at + 1
        and parts[: len(base)] == base
        and not any(part in OWN_OUTPUT or part.endswith(".taps") for part in parts)
    }
    empty = sorted(found - filled)
    if empty:
        raise DataError(f"{path} has class folders without images: {names.shown(empty)}; fill or move them.")


def _number_folders(
    counts: Counter[str], given: tuple[str, ...] | None, path: Path
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Class list and label of each folder: in sorted order, or in the order of the given names."""
    folders = sorted(counts)
    if given is not None:
        label_of = _labels(folders, given)
        outside = [f"{folder} ({counts[folder]:,} images)" for folder in folders if folder not in label_of]
        if outside:
            raise DataError(
                f"{path} has classes that are not in the list of {len(given):,} names: "
                f"{names.shown(outside)}; add them to the list, or move these folders away."
            )
        names.refuse_duplicates(folders)
        return given, label_of
    if len(folders) < 2:
        raise DataError(
            f"{path} has one class only ({folders[0]}): there is nothing to tell apart; "
            "for images without labels, give the folder that holds them, not the one above it."
        )
    if all(folder.isdigit() for folder in folders):
        raise DataError(
            f"{path} has numbers for class folders: give the list of class names they count "
            "(ImageNet-V2 is loaded by its name, imagenetv2)."
        )
    if not names.are_wnids(folders):
        names.refuse_duplicates(folders)
    # Folders of one class under several domains share a label; otherwise each folder has its own.
    return tuple(_words(folders)), {folder: index for index, folder in enumerate(folders)}


def _words(folders: Sequence[str]) -> list[str]:
    wnids = names.are_wnids(folders)
    return names.wnid_names(folders) if wnids else [names.readable(folder) for folder in folders]


def _labels(folders: Sequence[str], given: tuple[str, ...]) -> dict[str, int]:
    """Label of each folder that is in the list of names."""
    if all(folder.isdigit() for folder in folders) and not {*folders} & {*given}:
        # By value: in string order class 10 would come before class 2.
        return {folder: int(folder) for folder in folders if int(folder) < len(given)}
    ids = given.ids if isinstance(given, names.ClassNames) else ()
    if ids and names.are_wnids(folders):
        return {folder: ids.index(folder) for folder in folders if folder in ids}
    places: dict[str, list[int]] = {}
    for place, name in reversed([*enumerate(given)]):
        places.setdefault(names.normalised(name), []).append(place)
    label_of = {}
    for folder, word in zip(folders, _words(folders), strict=True):
        left = places.get(names.normalised(word), [])
        if left:  # of two ImageNet classes with one name, the first folder is the first of the list
            label_of[folder] = left.pop() if len(left) > 1 else left[0]
    return label_of
