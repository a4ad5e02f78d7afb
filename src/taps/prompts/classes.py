"""Class names: which can be classified into, and which one is meant."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from taps.errors import ClassNameError, UnknownClassError


def check_classes(
    classes: Sequence[str] | Mapping[int, str], *, allow_duplicates: bool = False
) -> tuple[str, ...]:
    """Class names that can be classified into, or a sentence that says why not.

    Args:
        classes: The names; or names by index, as an `id2label` of transformers has them.
        allow_duplicates: As ImageNet needs it: two of its classes are named "missile", two "sunglasses". Two
            spellings of a name are refused all the same.
    """
    if isinstance(classes, str):  # it would be taken for a list of letters
        raise ClassNameError(f"The classes are one text, {classes!r}; give a list of names.")
    if isinstance(classes, Mapping):
        classes = _by_index(classes)
    for place, name in enumerate(classes):
        if not isinstance(name, str):
            raise ClassNameError(f"Class {place} is {name!r}; class names are texts, such as 'cat'.")
    names = tuple(name.strip() for name in classes)
    if len(names) < 2:
        raise ClassNameError(
            f"A classifier needs at least two classes, but {len(names)} was given: {list(names)}."
        )
    if any(not name for name in names):
        raise ClassNameError("A class name is empty; give every class a name.")
    seen: dict[str, str] = {}
    for name in names:
        for key in map(folded_name, synonyms(name)):
            if key in seen and not (allow_duplicates and seen[key] == name):
                raise ClassNameError(f"The class names {seen[key]!r} and {name!r} are the same; keep one.")
            seen[key] = name
    return names


def _by_index(names: Mapping[int, str]) -> list[str]:
    """The names of an id2label mapping, in the order of their indices."""
    by_index = {int(key): name for key, name in names.items() if str(key).isdecimal()}
    if sorted(by_index) != list(range(len(names))):
        raise ClassNameError(
            f"The classes are a mapping whose keys are not 0 to {len(names) - 1}; give a list of names."
        )
    return [by_index[index] for index in range(len(names))]


def readable(name: str) -> str:
    """A class name as it is put into a sentence.

    >>> readable("fire_truck")
    'fire truck'
    """
    return name.replace("_", " ")


def folded_name(name: str) -> str:
    """What two spellings of one class have in common."""
    return readable(name).casefold()


def synonyms(name: str) -> tuple[str, ...]:
    """The names a class goes by: "|" stands between them.

    >>> synonyms("mug | cup"), synonyms("fire truck")
    (('mug', 'cup'), ('fire truck',))
    """
    return tuple(each.strip() for each in name.split("|"))


def whole_number(value: object) -> int | None:
    """A plain int of any kind of whole number (numpy's too); None for everything else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def class_index(classes: Sequence[str], label: object) -> int:
    """Index of a class given by name or index.

    >>> class_index(["cat", "fire truck"], "Fire_Truck")
    1
    """
    if isinstance(label, str):
        return _index_of_name(classes, label)
    index = whole_number(label)
    if index is None or not 0 <= index < len(classes):
        raise ClassNameError(
            f"The label {label!r} is neither a class name nor a number from 0 to {len(classes) - 1}."
        )
    return index


def _index_of_name(classes: Sequence[str], name: str) -> int:
    if classes.count(name) > 1:
        raise ClassNameError(f"Two classes are named {name!r}; answer by index.")
    if name in classes:
        return classes.index(name)
    wanted = folded_name(name)
    for index, each in enumerate(classes):
        if wanted in (folded_name(each), *map(folded_name, synonyms(each))):
            return index
    raise UnknownClassError(
        f"{name!r} is not one of the {len(classes)} classes, such as {classes[0]!r}", name
    )


def add_classes(classes: tuple[str, ...], names: str | Sequence[str]) -> tuple[str, ...]:
    """The classes, and behind them one or several more that have other names."""
    new = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Sequence) else ()
    if not new or not all(isinstance(name, str) for name in new):
        raise ClassNameError(f"{names!r} names no class to add; give a text, or a list of them.")
    known = {folded_name(name) for name in classes}
    for name in new:
        if folded_name(name.strip()) in known:
            raise ClassNameError(f"The class {name!r} exists already; nothing is added.")
    check_classes((classes[0], *new))  # of the classes so far, two may share a name
    return check_classes((*classes, *new), allow_duplicates=True)
