"""The named sets: what each holds, where it lies, and what its classes are called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from taps.data.dataset import DEFAULT_TEMPLATE
from taps.data.facts import class_names, fact, imagenet_names
from taps.data.names import readable


@dataclass(frozen=True)
class NamedSet:
    """One of the sets that papers of this field compare on.

    Attributes:
        id: What is typed.
        name: What is printed.
        classes: How many classes it has.
        images: How many images its test split has.
        kind: How labels are found: `split` (CoOp's JSON), `variants` (FGVC's lists), `wnids` (folders named
            by WordNet id) or `numbers` (folders 0 to 999).
        roots: Where the images may lie below the data folder; the first is CoOp's.
        template: CoOp's hand-written sentence for zero-shot classification.
        split_file: CoOp's split file.
        official: Which official list says the same as the split file, if one does.
        differs: What a user with the official list only should know, where it says something else.
        per_class: How many test images each class has, where all have the same.
        class_folders: Whether the folders in the root are classes.
        ignored: Folders in the root that are rightly not used.
        buffer: The paper's buffer size on this set.
        aliases: Other names it goes by.
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
        """The layout expected below the data folder, for people."""
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
    """The set a name means, or None; case, hyphens, underscores and common other names do not matter.

    >>> find_set("Caltech-101").id, find_set("Flowers102").id, find_set("my photos")
    ('caltech101', 'oxford_flowers', None)
    """
    wanted = compact(name)
    for known in named_sets().values():
        if wanted in {compact(other) for other in (known.id, known.name, *known.aliases)}:
            return known
    return None


def official_classes(named: NamedSet) -> tuple[str, ...] | None:
    """The readable class names in label order; None where they depend on which folders there are."""
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
    """What all spellings of a class name in split files have in common: its words, sorted.

    >>> spelling_key("2012 Tesla Model S") == spelling_key("Tesla Model S 2012")
    True
    >>> spelling_key("ApplyEyeMakeup") == spelling_key("Apply_Eye_Makeup")
    True
    """
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", name)
    key = " ".join(sorted(word.lower() for word in words))
    return " ".join(sorted(RENAMED.get(key, key).split()))
