"""Named sets whose folders are the labels: WordNet ids, or ImageNet-V2's numbers 0 to 999."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from taps.data.dataset import Sample
from taps.data.facts import imagenet_names
from taps.data.names import WNID, shown
from taps.data.registry import NamedSet
from taps.data.sources import FolderSource, Listing
from taps.data.survey import Survey


def survey_folders(named: NamedSet, roots: list[Path], survey: Survey) -> None:
    """Sets whose folders are the labels: WordNet ids, or the numbers 0 to 999."""
    tops = {place: {child.name for child in place.iterdir() if child.is_dir()} for place in roots}
    good = [place for place in roots if any(_is_label(named, name) for name in tops[place])]
    survey.root = good[0] if good else roots[0]
    listing = FolderSource(survey.root).listing()
    survey.skipped = listing.skipped
    labels = _label_folders(named, listing, survey)
    counts = Counter(parts[0] for parts in listing.images if len(parts) > 1)
    empty = [name for name in labels if not counts[name]]
    survey.say_which("wrong", f"{named.name}: class folders without images", empty)
    number = _number_wnids if named.kind == "wnids" else _number_folders
    label_of = number(named, labels, survey)
    survey.samples = [
        Sample("/".join(parts), label_of[parts[0]])
        for parts in listing.images
        if len(parts) > 1 and parts[0] in label_of
    ]
    if named.kind == "numbers":
        survey.samples.sort(key=lambda sample: (sample.label, sample.key))
    each = named.per_class
    uneven = [f"{name} ({counts[name]})" for name in labels if each and counts[name] not in (0, each)]
    survey.say_which("wrong", f"{named.name}: classes that have not {each} images", uneven)


def _label_folders(named: NamedSet, listing: Listing, survey: Survey) -> list[str]:
    """The folders that are classes; said is what else lies beside them."""
    folders = sorted({parts[0] for parts in listing.folders if len(parts) == 1})
    labels = [name for name in folders if _is_label(named, name)]
    loose_images = sum(len(parts) == 1 for parts in listing.images)
    if loose_images:
        survey.say(
            "error" if not labels else "wrong",
            f"{named.name}: {loose_images:,} images lie in {survey.root} outside any class folder; "
            "sort them into folders, one a class.",
            loose_images,
        )
    strange = sorted(set(folders) - set(labels))
    if strange:
        # A WordNet id that is not ImageNet's speaks of another set; anything else can be passed over.
        fatal = not labels or any(WNID.fullmatch(name) for name in strange)
        expected = "the numbers 0 to 999" if named.kind == "numbers" else "ImageNet's WordNet ids"
        survey.say(
            "error" if fatal else "wrong",
            f"{named.name}: {len(strange):,} folders are no classes of it: {shown(strange)}; "
            f"expected are {expected}.",
            len(strange),
        )
    return labels


def _is_label(named: NamedSet, name: str) -> bool:
    if named.kind == "numbers":
        return name.isascii() and name.isdigit()
    return bool(WNID.fullmatch(name)) and name in imagenet_names()


def _number_wnids(named: NamedSet, wnids: list[str], survey: Survey) -> dict[str, int]:
    table = imagenet_names()
    if len(wnids) != named.classes:
        # Labels of the subsets count the folders, so one folder less moves every label after it.
        survey.say(
            "error" if named.classes < 1000 else "wrong",
            f"{named.name}: {len(wnids):,} class folders where {named.classes:,} are expected.",
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
    survey.say_which("error", f"{named.name}: folders that are the same number", twice)
    if 0 not in values and 1000 in values:
        survey.say(
            "error",
            f"{named.name}: folders count from 1 to 1000, so every label is one too high; rename them.",
        )
    else:
        high = [str(value) for value in sorted(values) if value > 999]
        survey.say_which("error", f"{named.name}: folders above 999", high)
    absent = [str(value) for value in range(1000) if value not in values]
    survey.say_which("wrong", f"{named.name}: folders that are missing", absent)
    padded = [name for name in folders if name != str(int(name))]
    if padded:
        survey.say(
            "note",
            f"{named.name}: folder names with leading zeros ({shown(padded, 3)}) are read as numbers; "
            "code that sorts them as text labels such a copy otherwise than the original one.",
            len(padded),
        )
    return {name: label for name, label in label_of.items() if label <= 999}
