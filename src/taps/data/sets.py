"""The named sets: counts, folders, templates and class names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from taps.data.dataset import DEFAULT_TEMPLATE
from taps.data.facts import class_names, fact, imagenet_names
from taps.data.names import readable


@dataclass(frozen=True)
class NamedSet:
    """A benchmark known by name.

    Attributes:
        id: The name to type.
        name: The name to print.
        images: Number of images of the test split.
        kind: How labels are found: `split` (CoOp's JSON), `variants` (FGVC's lists), `wnids` (folders named
            by WordNet id) or `numbers` (folders 0 to 999).
        roots: Where the images may lie below the data folder; the first is CoOp's.
        template: CoOp's hand-written sentence for zero-shot classification.
        split_file: CoOp's split file.
        official: The official list with the same test images as the split file, if there is one.
        differs: A hint for users of an official list with other test images.
        per_class: Test images of each class, where all have the same number.
        class_folders: Whether the folders in the root are classes.
        ignored: Folders in the root that do not belong to the set.
        buffer: The paper's buffer size on this set.
    """

    id: str
    name: str
    classes: int
    images: int
    kind: str
    roots: tuple[str, ...]
    template: str = DEFAULT_TEMPLATE
    split_file: str = ""
    official: str = ""
    differs: str = ""
    per_class: int | None = None
    class_folders: bool = False
    ignored: tuple[str, ...] = ()
    buffer: int | None = None
    aliases: tuple[str, ...] = ()

    @property
    def layout(self) -> str:
        """The expected layout below the data folder, for `taps data list`."""
        after = {
            "split": f" + {self.split_file}",
            "variants": " + variants.txt, images_variant_test.txt",
            "wnids": "/n01440764/…",
            "numbers": "/0/… to /999/…",
        }
        return self.roots[0] + after[self.kind]


@cache
def named_sets() -> dict[str, NamedSet]:
    """Every named set by its id.

    >>> named_sets()["eurosat"].images
    8100
    """
    rows = fact("sets")
    for row in rows:
        row.update({key: tuple(value) for key, value in row.items() if isinstance(value, list)})
    return {row["id"]: NamedSet(**row) for row in rows}


def find_set(name: str) -> NamedSet | None:
    """The set of a name, or None; case, hyphens and underscores do not matter, aliases are known.

    >>> find_set("Caltech-101").id, find_set("Flowers102").id, find_set("my photos")
    ('caltech101', 'oxford_flowers', None)
    """
    wanted = compact(name)
    for known in named_sets().values():
        if wanted in {compact(other) for other in (known.id, known.name, *known.aliases)}:
            return known
    return None


def official_classes(named: NamedSet) -> tuple[str, ...] | None:
    """The readable class names in label order; None where they depend on the folders of a copy."""
    if named.id in class_names():
        return tuple(readable(name) for name in class_names()[named.id])
    return tuple(imagenet_names().values()) if named.classes == 1000 else None


def compact(name: str) -> str:
    """A name without case, hyphens, underscores and blanks.

    >>> compact("ImageNet-Sketch") == compact("imagenet_sketch")
    True
    """
    return re.sub(r"[-_ ]", "", name).casefold()


RENAMED = {
    # CoOp renamed these; split files with the names of the raw folders are about as common.
    "airplanes": "airplane",
    "faces": "face",
    "leopards": "leopard",
    "motorbikes": "motorbike",
    "annual crop": "annual crop land",
    "herbaceous vegetation": "herbaceous land vegetation",
    "highway": "highway or road",
    "industrial": "buildings industrial",
    "pasture": "land pasture",
    "crop permanent": "crop land permanent",
    "residential": "buildings residential",
    "lake sea": "lake or sea",
    "hand pushups stand": "handstand pushups",
    "hand stand walking": "handstand walking",
}


def spelling_key(name: str) -> str:
    """The form in which all spellings of a class name in split files are equal: its words, sorted.

    >>> spelling_key("2012 Tesla Model S") == spelling_key("Tesla Model S 2012")
    True
    >>> spelling_key("ApplyEyeMakeup") == spelling_key("Apply_Eye_Makeup")
    True
    """
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", name)
    key = " ".join(sorted(word.lower() for word in words))
    return " ".join(sorted(RENAMED.get(key, key).split()))
