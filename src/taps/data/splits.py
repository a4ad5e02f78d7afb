"""The files that say which image belongs to which split and class."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from taps.data.names import read_text
from taps.errors import DataError


@dataclass(frozen=True)
class Entry:
    """One line of a split: path below the image root, label, and the class name the file gives it."""

    path: str
    label: int
    name: str


def read_coop_split(path: Path, split: str) -> list[Entry]:
    """One part of CoOp's JSON: train, val and test, each a list of [path, label, class name]."""
    try:
        parts = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} cannot be read as JSON ({error}): fetch it again.") from error
    if not isinstance(parts, dict) or not isinstance(parts.get(split), list):
        raise DataError(f"{path} has no list {split!r}: it should have train, val and test.")
    try:
        return [
            Entry(str(file).replace("\\", "/"), int(label), str(name)) for file, label, name in parts[split]
        ]
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{path}: a row of {split!r} is not [path, label, class name]: fetch it again."
        ) from error


def read_variants(folder: Path, split: str) -> list[Entry]:
    """FGVC-Aircraft: `variants.txt` numbers the classes, a list a split names image and variant."""
    variants = read_lines(folder / "variants.txt")
    label_of = {variant: label for label, variant in enumerate(variants)}
    entries = []
    for line in read_lines(folder / f"images_variant_{split}.txt"):
        image, _, variant = line.partition(" ")
        entries.append(Entry(f"{image}.jpg", label_of.get(variant.strip(), -1), variant.strip()))
    return entries


def read_pets(folder: Path) -> list[Entry]:
    """Oxford-IIIT Pets: `annotations/test.txt` has image, class from 1, species and breed."""
    entries = []
    for line in read_lines(folder / "annotations" / "test.txt"):
        image, label = line.split()[:2]
        entries.append(Entry(f"{image}.jpg", int(label) - 1, image.rsplit("_", 1)[0].lower()))
    return entries


def read_sun(folder: Path) -> list[Entry]:
    """SUN397: `ClassName.txt` numbers the classes; /a/apse/indoor is called `indoor apse`."""
    classes = [line.strip("/") for line in read_lines(folder / "ClassName.txt")]
    label_of = {name: label for label, name in enumerate(classes)}
    entries = []
    for line in read_lines(folder / "Testing_01.txt"):
        path = line.strip("/")
        place = path.rsplit("/", 1)[0]
        entries.append(Entry(path, label_of.get(place, -1), " ".join(reversed(place.split("/")[1:]))))
    return entries


def read_ucf(folder: Path) -> list[Entry]:
    """UCF101: `testlist01.txt` names videos; the middle frames lie in folders split at each capital."""
    lists = folder / "ucfTrainTestlist"
    label_of = {name: int(label) - 1 for label, name in map(str.split, read_lines(lists / "classInd.txt"))}
    entries = []
    for line in read_lines(lists / "testlist01.txt"):
        action, video = line.split()[0].split("/")
        frame = video.removesuffix(".avi") + ".jpg"
        entries.append(Entry(f"{capital_split(action)}/{frame}", label_of.get(action, -1), action))
    return entries


OFFICIAL: dict[str, tuple[str, Callable[[Path], list[Entry]]]] = {
    # Official lists with the same test images as CoOp's split: the file to look for, and its reader.
    "pets": ("annotations/test.txt", read_pets),
    "sun397": ("Testing_01.txt", read_sun),
    "ucf101": ("ucfTrainTestlist/testlist01.txt", read_ucf),
}


def capital_split(name: str) -> str:
    """UCF101's folders as CoOp names them.

    >>> capital_split("ApplyEyeMakeup")
    'Apply_Eye_Makeup'
    """
    return "_".join(re.findall("[A-Z][^A-Z]*", name)) or name


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not empty."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]
