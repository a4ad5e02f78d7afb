"""Named sets that come with a list of images: each row is held against the class list and the disk."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from taps.data import splits
from taps.data.dataset import Sample
from taps.data.locate import find_file
from taps.data.names import shown
from taps.data.registry import NamedSet, official_classes, spelling_key
from taps.data.splits import Entry
from taps.data.survey import Survey
from taps.errors import DataError


def read_entries(named: NamedSet, roots: list[Path], root: Path, split: str) -> list[Entry]:
    """The rows of the split, from CoOp's file or from an official list that says the same."""
    # Split files are looked for beside where the images should be, even when those are missing.
    tops = [root / candidate.split("/")[0] for candidate in named.roots]
    places = roots or [place for place in tops if place.is_dir()]
    if named.kind == "variants":
        file = find_file("variants.txt", places, root)
        if file is None:
            raise DataError(f"{named.name}: variants.txt is missing; it belongs beside the folder of images.")
        return splits.read_variants(file.parent, split)
    file = find_file(named.split_file, places, root)
    if file is not None:
        return splits.read_coop_split(file, split)
    if named.official and split == "test":
        list_name, reader = splits.OFFICIAL[named.official]
        for prefix in ("", "Partitions/"):
            file = find_file(prefix + list_name, places, root)
            if file is not None:
                return reader(file.parents[list_name.count("/")])
    folder = roots[0].parent if roots and "/" in named.roots[0] else tops[0]
    hint = f" {named.differs}" if named.differs else ""
    raise DataError(
        f"{named.name}: {named.split_file} is missing; fetch it from the page on data sets in the CoOp "
        f"repository and put it into {folder}.{hint}"
    )


def survey_entries(named: NamedSet, entries: list[Entry], roots: list[Path], survey: Survey) -> None:
    """Sets with a list of images: check each row against the class list and the disk."""
    classes = official_classes(named) or ()
    probe = entries[:: max(1, len(entries) // 20)]
    survey.root = max(roots, key=lambda place: sum((place / entry.path).is_file() for entry in probe))
    survey.classes = classes
    inside = _rightly_labelled(named, entries, classes, survey)
    twice = [path for path, count in Counter(entry.path for entry in entries).items() if count > 1]
    survey.say_which("wrong", f"{named.name}: images listed more than once", twice)
    missing = [entry.path for entry in entries if not (survey.root / entry.path).is_file()]
    share = f"{len(missing):,} of {len(entries):,}"
    survey.say_which("error", f"{named.name}: {share} images are not in {survey.root}", missing, most=3)
    absent = set(missing)
    survey.samples = [Sample(entry.path, entry.label) for entry in inside if entry.path not in absent]
    if named.class_folders:
        _note_extra_folders(named, entries, survey)


def _rightly_labelled(
    named: NamedSet, entries: list[Entry], classes: tuple[str, ...], survey: Survey
) -> list[Entry]:
    """The rows whose label is one of the set's; which have another, or another name, is said."""
    keys = [spelling_key(name) for name in classes]
    unused = [entry for entry in entries if entry.path.split("/")[0] in named.ignored]
    outside = [entry for entry in entries if not 0 <= entry.label < len(classes)]
    if unused:
        survey.say(
            "error",
            f"{named.name}: {len(unused):,} rows are from "
            f"{shown(named.ignored)}, which the set of {named.classes} classes leaves out.",
            len(unused),
        )
    if outside:
        strange = Counter(f"{entry.name} (label {entry.label})" for entry in outside)
        survey.say(
            "error",
            f"{named.name}: {len(outside):,} rows have labels outside its {len(classes)} classes: "
            f"{shown(list(strange))}.",
            len(outside),
        )
    inside = [entry for entry in entries if 0 <= entry.label < len(classes)]
    renamed = [entry for entry in inside if spelling_key(entry.name) != keys[entry.label]]
    if renamed:
        first = renamed[0]
        survey.say(
            "error",
            f"{named.name}: {len(renamed):,} rows are mislabelled: {first.path} is called {first.name!r} but "
            f"has label {first.label}, which is {classes[first.label]!r}; fetch the original split file.",
            len(renamed),
        )
    return inside


def _note_extra_folders(named: NamedSet, entries: list[Entry], survey: Survey) -> None:
    assert survey.root is not None
    used = {entry.path.split("/")[0] for entry in entries} | set(named.ignored)
    with os.scandir(survey.root) as items:
        extra = {item.name for item in items if item.is_dir() and not item.name.startswith(".")} - used
    survey.say_which("note", f"{named.name}: folders that no row of the split uses", sorted(extra))
