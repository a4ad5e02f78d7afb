"""Class names: checks, synonyms, and the index of a name."""

from __future__ import annotations

import operator
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from taps.errors import ClassNameError, UnknownClassError
from taps.plain_names import folded_name, synonyms


def check_classes(
    classes: Sequence[str] | Mapping[int, str], *, allow_duplicates: bool = False
) -> tuple[str, ...]:
    """The class names, stripped, if they can be classified into.

    Args:
        classes: The names; or names by index, as an `id2label` of transformers has them.
        allow_duplicates: For ImageNet, two of whose classes are named "missile", two "sunglasses". Two
            spellings of a name are refused all the same.
    """
    if isinstance(classes, str):  # it would be taken for a list of letters
        raise ClassNameError(f"The classes are one text, {classes!r}; give a list of names.")
    if isinstance(classes, set | frozenset) or not isinstance(classes, Iterable):
        raise ClassNameError(
            f"The classes are {repr(classes)[:60]}, which has no order; give a list of names: their places "
            "are the numbers of the classes."
        )
    if isinstance(classes, Mapping):
        by_index = {int(key): name for key, name in classes.items() if str(key).isdecimal()}
        if sorted(by_index) != list(range(len(classes))):
            raise ClassNameError(
                f"The classes are a mapping whose keys are not 0 to {len(classes) - 1}; give a list of names."
            )
        classes = [by_index[index] for index in range(len(classes))]
    classes = list(classes)
    for place, name in enumerate(classes):
        if not isinstance(name, str):
            raise ClassNameError(f"Class {place} is {name!r}; class names are texts, such as 'cat'.")
    names = tuple(name.strip() for name in classes)
    if len(names) < 2:
        raise ClassNameError(f"A classifier needs at least two classes, not {len(names)}: {list(names)}.")
    if any(not name for name in names):
        raise ClassNameError("A class name is empty; give every class a name.")
    seen: dict[str, str] = {}
    for name in names:
        for key in map(folded_name, synonyms(name)):
            if key in seen and not (allow_duplicates and seen[key] == name):
                raise ClassNameError(f"The class names {seen[key]!r} and {name!r} are the same; keep one.")
            seen[key] = name
    return names


def whole_number(value: object) -> int | None:
    """A plain int of a whole number of any type (numpy's and torch's too); None for everything else."""
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def class_index(classes: Sequence[str], label: object) -> int:
    """Index of a class given by name or index.

    >>> class_index(["cat", "fire truck"], "Fire_Truck")
    1
    """
    if not isinstance(label, str):
        index = whole_number(label)
        if index is None or not 0 <= index < len(classes):
            raise ClassNameError(
                f"The label {label!r} is neither a class name nor a number from 0 to {len(classes) - 1}."
            )
        return index
    if classes.count(label) > 1:
        raise ClassNameError(f"Two classes are named {label!r}; answer by index.")
    if label in classes:
        return classes.index(label)
    wanted = folded_name(unicodedata.normalize("NFC", label))
    for index, name in enumerate(classes):
        if wanted in (folded_name(name), *map(folded_name, synonyms(name))):
            return index
    raise UnknownClassError(
        f"{label!r} is not one of the {len(classes)} classes, such as {classes[0]!r}", label
    )


def add_classes(classes: tuple[str, ...], names: str | Sequence[str]) -> tuple[str, ...]:
    """The classes, and behind them one or several new ones."""
    new = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Sequence) else ()
    if not new or not all(isinstance(name, str) for name in new):
        raise ClassNameError(f"{names!r} names no class to add; give a text, or a list of them.")
    known = {folded_name(name) for name in classes}
    for name in new:
        if folded_name(name.strip()) in known:
            raise ClassNameError(f"The class {name!r} exists already; nothing is added.")
    check_classes((classes[0], *new))  # of the classes so far, two may share a name
    return check_classes((*classes, *new), allow_duplicates=True)
