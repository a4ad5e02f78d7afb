"""Where a named set lies below a data folder, and the files that list its images, splits and classes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from taps.data.names import read_text
from taps.data.sets import NamedSet, compact
from taps.errors import DataError


@dataclass(frozen=True)
class Entry:
    """One row of a split: path below the image root, label, and the class name the file gives it."""

    path: str
    label: int
    name: str


def find_roots(named: NamedSet, root: Path, split: str = "test") -> list[Path]:
    """The existing folders that may hold the images, best first.

    `ImageNet-Sketch`, `imagenet_sketch` and `imagenet-sketch` are the same, and `root` may already point into
    the set.
    """
    found: list[Path] = []
    for candidate in named.roots:
        parts = PurePosixPath(candidate).parts
        if split == "train" and parts[-1] == "val":
            parts = (*parts[:-1], "train")
        for inside in range(len(parts) + 1):
            heads = root.resolve().parts[-inside:] if inside else ()
            if [compact(head) for head in heads] == [compact(part) for part in parts[:inside]]:
                found += [place for place in _descend(root, parts[inside:]) if place not in found]
    return found


def _descend(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    if not parts:
        yield folder
        return
    exact = folder / parts[0]
    if exact.is_dir():
        yield from _descend(exact, parts[1:])
    try:
        below = sorted(folder.iterdir())
    except OSError:
        return
    for child in below:
        if child != exact and compact(child.name) == compact(parts[0]) and child.is_dir():
            yield from _descend(child, parts[1:])


def read_entries(named: NamedSet, roots: list[Path], root: Path, split: str) -> list[Entry]:
    """The rows of the split, from CoOp's file or from an official list with the same images."""
    # Split files are looked for beside where the images should be, even when those are missing.
    tops = [root / candidate.split("/")[0] for candidate in named.roots]
    places = roots or [place for place in tops if place.is_dir()]
    if named.kind == "variants":
        file = _find_file("variants.txt", places, root)
        if file is None:
            raise DataError(f"{named.name}: variants.txt is missing; it belongs beside the folder of images.")
        return _read_variants(file.parent, split)
    file = _find_file(named.split_file, places, root)
    if file is not None:
        return _read_coop_split(file, split)
    if named.official and split == "test":
        list_name, reader = OFFICIAL[named.official]
        for prefix in ("", "Partitions/"):
            file = _find_file(prefix + list_name, places, root)
            if file is not None:
                return reader(file.parents[list_name.count("/")])
    folder = roots[0].parent if roots and "/" in named.roots[0] else tops[0]
    hint = f" {named.differs}" if named.differs else ""
    raise DataError(
        f"{named.name}: {named.split_file} is missing; fetch it from the page on data sets in the CoOp "
        f"repository and put it into {folder}.{hint}"
    )


def _find_file(name: str, roots: list[Path], top: Path) -> Path | None:
    """A file beside the images or above them, not higher than the data folder."""
    top = top.resolve()
    for place in roots:
        for folder in [place, *place.parents]:
            if (folder / name).is_file():
                return folder / name
            # One above the data folder, in case it points into the set.
            if folder.resolve() == top.parent or folder == folder.parent:
                break
    return top / name if (top / name).is_file() else None


def _read_coop_split(path: Path, split: str) -> list[Entry]:
    """One part of CoOp's JSON: train, val and test, each a list of [path, label, class name]."""
    try:
        parts = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} cannot be read as JSON ({error}): fetch it again.") from error
    rows = parts.get(split) if isinstance(parts, dict) else None
    if not isinstance(rows, list):
        raise DataError(f"{path} has no list {split!r}: it should have train, val and test.")
    try:
        return [Entry(str(file).replace("\\", "/"), int(label), str(name)) for file, label, name in rows]
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: a row of {split!r} is not [path, label, name]: fetch it again.") from error


def _read_variants(folder: Path, split: str) -> list[Entry]:
    """FGVC-Aircraft: `variants.txt` numbers the classes, a list a split names image and variant."""
    label_of = {variant: label for label, variant in enumerate(_read_lines(folder / "variants.txt"))}
    entries = []
    for line in _read_lines(folder / f"images_variant_{split}.txt"):
        image, _, variant = line.partition(" ")
        entries.append(Entry(f"{image}.jpg", label_of.get(variant.strip(), -1), variant.strip()))
    return entries


def _read_pets(folder: Path) -> list[Entry]:
    """Oxford-IIIT Pets: `annotations/test.txt` has image, class from 1, species and breed."""
    entries = []
    for line in _read_lines(folder / "annotations" / "test.txt"):
        image, label = line.split()[:2]
        entries.append(Entry(f"{image}.jpg", int(label) - 1, image.rsplit("_", 1)[0].lower()))
    return entries


def _read_sun(folder: Path) -> list[Entry]:
    """SUN397: `ClassName.txt` numbers the classes; /a/apse/indoor is called `indoor apse`."""
    classes = [line.strip("/") for line in _read_lines(folder / "ClassName.txt")]
    label_of = {name: label for label, name in enumerate(classes)}
    entries = []
    for line in _read_lines(folder / "Testing_01.txt"):
        path = line.strip("/")
        place = path.rsplit("/", 1)[0]
        entries.append(Entry(path, label_of.get(place, -1), " ".join(reversed(place.split("/")[1:]))))
    return entries


def _read_ucf(folder: Path) -> list[Entry]:
    """UCF101: `testlist01.txt` names videos; the middle frames lie in folders such as Apply_Eye_Makeup."""
    lists = folder / "ucfTrainTestlist"
    label_of = {name: int(label) - 1 for label, name in map(str.split, _read_lines(lists / "classInd.txt"))}
    entries = []
    for line in _read_lines(lists / "testlist01.txt"):
        action, video = line.split()[0].split("/")
        words = re.findall("[A-Z][^A-Z]*", action) or [action]
        frame = f"{'_'.join(words)}/{video.removesuffix('.avi')}.jpg"
        entries.append(Entry(frame, label_of.get(action, -1), action))
    return entries


OFFICIAL: dict[str, tuple[str, Callable[[Path], list[Entry]]]] = {
    # Official lists with the same test images as CoOp's split: the file to look for, and its reader.
    "pets": ("annotations/test.txt", _read_pets),
    "sun397": ("Testing_01.txt", _read_sun),
    "ucf101": ("ucfTrainTestlist/testlist01.txt", _read_ucf),
}


def _read_lines(path: Path) -> list[str]:
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]
