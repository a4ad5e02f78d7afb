"""Survey of a copy of a named set: its images and labels, compared with the published ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from taps.data.dataset import Sample
from taps.data.facts import imagenet_names
from taps.data.names import WNID, shown
from taps.data.sets import NamedSet, official_classes, spelling_key
from taps.data.sources import FolderSource, Listing
from taps.data.splits import Entry, find_roots, read_entries
from taps.errors import DataError


@dataclass(frozen=True)
class Finding:
    """A remark about a copy of a data set.

    Attributes:
        level: `error` if the copy cannot be loaded rightly, `wrong` if it loads but is not the published set,
            `note` if it does no harm.
        text: One sentence.
        count: Number of files, rows or folders it is about.
    """

    level: str
    text: str
    count: int = 1


@dataclass
class Survey:
    """What a copy of a set holds.

    Attributes:
        prefix: Begins the text of every finding.
        root: The folder the images are in; None if there is none.
        classes: Readable class names.
        samples: The images that exist and are labelled rightly.
        kinds: Numbers of other files by kind.
    """

    prefix: str = ""
    findings: list[Finding] = field(default_factory=list)
    root: Path | None = None
    classes: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, level: str, text: str, count: int = 1) -> None:
        """Add a finding, unless its count is 0."""
        if count:
            self.findings.append(Finding(level, self.prefix + text, count))

    def add_list(self, level: str, text: str, items: Sequence[str], most: int = 5) -> None:
        """Add a finding that names the first of the files, rows or folders, if there are any."""
        self.add(level, f"{text}: {shown(items, most)}.", len(items))


def survey_set(named: NamedSet, root: Path, split: str = "test") -> Survey:
    """Survey a copy of a set without decoding an image."""
    survey = Survey(f"{named.name}: ")
    if not root.is_dir():
        survey.findings.append(Finding("error", f"No folder {root} found: give the folder of data sets."))
        return survey
    roots, entries = find_roots(named, root, split), []
    if named.kind in ("split", "variants"):
        try:
            entries = read_entries(named, roots, root, split)
        except DataError as error:
            survey.findings.append(Finding("error", str(error)))
    elif named.id != "imagenet" and split != "test":
        survey.add("error", f"it has a test split only, not {split!r}.")
        return survey
    if not roots:
        others = f" (or {', '.join(named.roots[1:])})" if len(named.roots) > 1 else ""
        survey.add("error", f"there is no folder {named.roots[0]}{others} below {root}.")
    elif entries:
        _survey_entries(named, entries, roots, survey, lambda: _listed(named, roots, root))
    elif named.kind in ("wnids", "numbers"):
        _survey_folders(named, roots, survey)
    return survey


def _listed(named: NamedSet, roots: list[Path], root: Path) -> set[str]:
    """Paths that the lists of any part have."""
    found: set[str] = set()
    for split in ("train", "val", "test"):
        with suppress(DataError):  # an official list has the test images alone
            found |= {entry.path for entry in read_entries(named, roots, root, split)}
    return found


def _survey_entries(
    named: NamedSet, entries: list[Entry], roots: list[Path], survey: Survey, listed: Callable[[], set[str]]
) -> None:
    """Sets with a list of images: check each row against the class list and the disk."""
    survey.classes = official_classes(named) or ()
    probe = entries[:: max(1, len(entries) // 20)]
    survey.root = max(roots, key=lambda place: sum((place / entry.path).is_file() for entry in probe))
    inside = _rightly_labelled(named, entries, survey)
    twice = [path for path, count in Counter(entry.path for entry in entries).items() if count > 1]
    survey.add_list("wrong", "images listed more than once", twice)
    missing = [entry.path for entry in entries if not (survey.root / entry.path).is_file()]
    moved = _by_name(missing, survey.root, listed()) if missing else {}
    survey.add(
        "note",
        f"{len(moved):,} images lie under other paths than the list has; they are found by their names.",
        len(moved),
    )
    missing = [path for path in missing if path not in moved]
    share = f"{len(missing):,} of {len(entries):,}"
    survey.add_list(
        "error", f"{share} images are not in {survey.root}, nor is one file of their name", missing, most=3
    )
    absent = set(missing)
    paths = {entry.path: moved.get(entry.path, entry.path) for entry in entries}
    survey.samples = [Sample(paths[entry.path], entry.label) for entry in inside if entry.path not in absent]
    if named.class_folders:
        used = {path.split("/")[0] for path in paths.values()} | set(named.ignored)
        with os.scandir(survey.root) as items:
            extra = {item.name for item in items if item.is_dir() and not item.name.startswith(".")} - used
        survey.add_list("note", "folders that no row of the split uses", sorted(extra))


def _by_name(missing: Sequence[str], root: Path, listed: set[str]) -> dict[str, str]:
    """Where missing images lie, found by name: one missing image and one file have it, and no list that file.

    A file that a list has under its own path is that image: of two parts, both may number theirs from 1.
    """
    files: dict[str, list[str]] = {}
    for parts in FolderSource(root).listing().images:
        if (path := "/".join(parts)) not in listed:
            files.setdefault(parts[-1], []).append(path)
    names = Counter(path.rpartition("/")[2] for path in missing)
    found = {path: files.get(name, []) for path in missing if names[name := path.rpartition("/")[2]] == 1}
    return {path: places[0] for path, places in found.items() if len(places) == 1}


def _rightly_labelled(named: NamedSet, entries: list[Entry], survey: Survey) -> list[Entry]:
    """The rows whose label is one of the set's; rows with another label or class name are reported."""
    classes = survey.classes
    unused = [entry for entry in entries if entry.path.split("/")[0] in named.ignored]
    survey.add(
        "error",
        f"{len(unused):,} rows are from {shown(named.ignored)}, which the set of {named.classes} classes "
        "leaves out.",
        len(unused),
    )
    outside = [entry for entry in entries if not 0 <= entry.label < len(classes)]
    strange = dict.fromkeys(f"{entry.name} (label {entry.label})" for entry in outside)
    survey.add(
        "error",
        f"{len(outside):,} rows have labels outside its {len(classes)} classes: {shown(list(strange))}.",
        len(outside),
    )
    inside = [entry for entry in entries if 0 <= entry.label < len(classes)]
    keys = [spelling_key(name) for name in classes]
    renamed = [entry for entry in inside if spelling_key(entry.name) != keys[entry.label]]
    if renamed:
        first = renamed[0]
        survey.add(
            "error",
            f"{len(renamed):,} rows are mislabelled: {first.path} is called {first.name!r} but has label "
            f"{first.label}, which is {classes[first.label]!r}; fetch the original split file.",
            len(renamed),
        )
    return inside


def _survey_folders(named: NamedSet, roots: list[Path], survey: Survey) -> None:
    """Sets whose folders are the labels: WordNet ids, or the numbers 0 to 999."""
    tops = {place: [child.name for child in place.iterdir() if child.is_dir()] for place in roots}
    good = [place for place in roots if any(_is_label(named, name) for name in tops[place])]
    survey.root = (good or roots)[0]
    listing = FolderSource(survey.root).listing()
    survey.kinds = listing.kinds
    labels = _label_folders(named, listing, survey)
    counts = Counter(parts[0] for parts in listing.images if len(parts) > 1)
    survey.add_list("wrong", "class folders without images", [name for name in labels if not counts[name]])
    number = _number_wnids if named.kind == "wnids" else _number_folders
    label_of = number(named, labels, survey)
    survey.samples = [
        Sample("/".join(parts), label_of[parts[0]])
        for parts in listing.images
        if len(parts) > 1 and parts[0] in label_of
    ]
    if named.kind == "numbers":
        survey.samples.sort(key=lambda sample: (sample.label, sample.path))
    each = named.per_class
    uneven = [f"{name} ({counts[name]})" for name in labels if each and counts[name] not in (0, each)]
    survey.add_list("wrong", f"classes that have not {each} images", uneven)


def _label_folders(named: NamedSet, listing: Listing, survey: Survey) -> list[str]:
    """The folders that are classes; whatever else lies beside them is reported."""
    folders = sorted({parts[0] for parts in listing.folders if len(parts) == 1})
    labels = [name for name in folders if _is_label(named, name)]
    loose_images = sum(len(parts) == 1 for parts in listing.images)
    survey.add(
        "error" if not labels else "wrong",
        f"{loose_images:,} images lie in {survey.root} outside any class folder; sort them into folders.",
        loose_images,
    )
    strange = sorted(set(folders) - set(labels))
    # A WordNet id that is not ImageNet's means another set; anything else can be passed over.
    fatal = not labels or any(WNID.fullmatch(name) for name in strange)
    expected = "the numbers 0 to 999" if named.kind == "numbers" else "ImageNet's WordNet ids"
    survey.add(
        "error" if fatal else "wrong",
        f"{len(strange):,} folders are no classes of it: {shown(strange)}; expected are {expected}.",
        len(strange),
    )
    return labels


def _is_label(named: NamedSet, name: str) -> bool:
    if named.kind == "numbers":
        return name.isascii() and name.isdigit()
    return bool(WNID.fullmatch(name)) and name in imagenet_names()


def _number_wnids(named: NamedSet, wnids: list[str], survey: Survey) -> dict[str, int]:
    table = imagenet_names()
    # Labels of the subsets count the folders, so one folder less moves every label after it.
    survey.add(
        "error" if named.classes < 1000 else "wrong",
        f"{len(wnids):,} class folders where {named.classes:,} are expected.",
        abs(len(wnids) - named.classes),
    )
    every = list(table) if named.classes == 1000 else sorted(wnids)
    survey.classes = tuple(table[wnid] for wnid in every)
    place = {wnid: label for label, wnid in enumerate(every)}
    return {wnid: place[wnid] for wnid in wnids}


def _number_folders(named: NamedSet, folders: list[str], survey: Survey) -> dict[str, int]:
    """The folder is the label, by value. In string order 10 comes before 2: the known mistake with V2."""
    survey.classes = tuple(imagenet_names().values())
    label_of = {name: int(name) for name in folders}
    values = Counter(label_of.values())
    twice = [str(value) for value, count in values.items() if count > 1]
    survey.add_list("error", "folders that are the same number", twice)
    if 0 not in values and 1000 in values:
        survey.add("error", "folders count from 1 to 1000, so every label is one too high; rename them.")
    else:
        high = [str(value) for value in sorted(values) if value > 999]
        survey.add_list("error", "folders above 999", high)
    absent = [str(value) for value in range(1000) if value not in values]
    survey.add_list("wrong", "folders that are missing", absent)
    padded = [name for name in folders if name != str(int(name))]
    survey.add(
        "note",
        f"folder names with leading zeros ({shown(padded, 3)}) are read as numbers; code that sorts them as "
        "text labels such a copy otherwise than the original one.",
        len(padded),
    )
    return {name: label for name, label in label_of.items() if label <= 999}
