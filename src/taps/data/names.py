"""Class names: comparing them, making them readable, reading lists of them, numbering labels by them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from taps.data.facts import imagenet_names
from taps.errors import DataError
from taps.plain_names import plain_name

WNID = re.compile(r"n\d{8}")


class ClassNames(tuple[str, ...]):
    """Class names that were checked. Two may be equal where WordNet ids tell the classes apart."""

    ids: tuple[str, ...] = ()


def readable(name: str) -> str:
    """
    >>> readable("ceiling_fan")
    'ceiling fan'
    """
    return " ".join(name.replace("_", " ").split())


def normalised(name: str) -> str:
    """The form in which two spellings of one class name are equal.

    >>> normalised("Ceiling_Fan") == normalised("ceiling  fan")
    True
    """
    return readable(name).casefold()


def are_wnids(names: Iterable[str]) -> bool:
    """Whether all names look like WordNet ids, the folder names of ImageNet and its relatives."""
    names = list(names)
    return bool(names) and all(WNID.fullmatch(name) for name in names)


def wnid_names(wnids: Sequence[str]) -> list[str]:
    """CLIP's readable names of ImageNet classes, by WordNet id.

    >>> wnid_names(["n01440764"])
    ['tench']
    """
    table = imagenet_names()
    unknown = [wnid for wnid in wnids if wnid not in table]
    if unknown:
        raise DataError(
            f"{shown(unknown)} {'is' if len(unknown) == 1 else 'are'} not among ImageNet's 1,000 classes: "
            "rename the folders to readable names, or give a list of class names."
        )
    return [table[wnid] for wnid in wnids]


def read_text(path: Path, what: str = "") -> str:
    """The text of a UTF-8 file, with or without a byte order mark; `what` names it in an error."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{what}{path} is not in UTF-8: save it in that encoding.") from error
    except OSError as error:
        raise DataError(f"{what}{path} cannot be read: {error}.") from error


def read_names(classes: Sequence[str] | str | Path) -> ClassNames:
    """Class names from a sequence, or from a text file with one name a line (and # comments)."""
    if isinstance(classes, ClassNames):
        return classes
    if isinstance(classes, (str, Path)):
        lines = read_text(Path(classes), "The list of class names ").splitlines()
        names = [plain_name(name) for line in lines if (name := line.strip()) and not name.startswith("#")]
    else:
        names = list(classes)
    if are_wnids(names):
        # Two ImageNet classes are called missile and two sunglasses, so only the ids can be told apart.
        refuse_duplicates(names)
        known = ClassNames(wnid_names(names))
        known.ids = tuple(names)
        return known
    names = [readable(name) for name in names]
    if any(not name for name in names):
        raise DataError(f"Class name {names.index('') + 1} of the list is empty: remove it.")
    if len(names) < 2:
        raise DataError(f"A class list needs at least two names, one a line in a file, not {len(names)}.")
    refuse_duplicates(names)
    return ClassNames(names)


def refuse_duplicates(names: Iterable[str]) -> None:
    """Two classes of one name cannot be told apart by a model that reads names."""
    counts = Counter(normalised(name) for name in names)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise DataError(f"Class names that appear more than once: {shown(twice)}; rename or merge them.")


def shown(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list for a sentence, and how many more there are.

    >>> shown(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    text = ", ".join(list(names)[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most:,} more"


def number_labels(
    texts: Sequence[str], given: tuple[str, ...] | None, path: Path
) -> tuple[tuple[str, ...], list[int | None]]:
    """Class list, and the label of each row of a table.

    Args:
        texts: The class of each row: a name, or with a class list also its index; empty for unknown.
        given: The class list; None to make it of the texts.
        path: The table, for errors.
    """
    counts = Counter(text for text in texts if text)
    if given is None:
        if not counts:
            return (), [None] * len(texts)
        if all(text.isdigit() for text in counts):
            raise DataError(f"{path} has numbers for labels: give the list of class names they count.")
        if are_wnids(counts):
            place = {wnid: label for label, wnid in enumerate(sorted(counts))}
            return tuple(wnid_names(list(place))), [place.get(text) for text in texts]
        spellings = {normalised(text): readable(text) for text in sorted(counts, reverse=True)}
        if len(spellings) < 2:
            raise DataError(f"{path} has one class only ({next(iter(counts))}); give two or more.")
        given = tuple(spellings[key] for key in sorted(spellings))
    index = {normalised(name): i for i, name in enumerate(given)}
    numbers = {str(i): i for i in range(len(given))} if not {*counts} <= {*index} else {}
    label_of = {text: index.get(normalised(text), numbers.get(text, -1)) for text in counts}
    outside = [f"{text} ({counts[text]:,} rows)" for text, label in label_of.items() if label < 0]
    if outside:
        raise DataError(f"{path} has labels not in the list of {len(given):,} names: {shown(outside)}.")
    return given, [label_of.get(text) for text in texts]
