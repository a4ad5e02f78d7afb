"""What a setting may be, said where it is defined: `views: int = setting(64, at_least=1)`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from taps.errors import SettingsError

KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "None": (type(None),),
}
WORDS = {"bool": "True or False", "int": "a whole number", "float": "a number", "str": "a text"}


@dataclass(frozen=True)
class Range:
    """Bounds, a list of choices, or a rule with words for it."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: Sequence[str] = ()
    rule: Callable[[Any], bool] | None = None
    words: str = ""

    def holds(self, value: Any) -> bool:
        if isinstance(value, str):
            return (not self.choices or value in self.choices) and (self.rule is None or self.rule(value))
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def told(self, kind: str) -> str:
        """What a value must be, in words; `kind` says what kind of value it is."""
        if self.words or self.choices:
            return self.words or f"one of {', '.join(self.choices)}"
        bounds = {
            "of at least": self.at_least,
            "above": self.above,
            "at most": self.at_most,
            "below": self.below,
        }
        found = " and ".join(f"{word} {number:g}" for word, number in bounds.items() if number is not None)
        return f"{kind} {found}".strip()


def setting(default: Any, **bounds: Any) -> Any:
    """A field of a settings dataclass and what it may be; numbers are finite in any case.

    Args:
        default: Its value where none is given.
        **bounds: Those of `Range`: `at_least`, `above`, `at_most`, `below`, `choices`; or `rule` and `words`.
    """
    return field(default=default, metadata={"range": Range(**bounds)})


def check_ranges(settings: Any) -> None:
    """Refuse values of another kind or out of range, naming the field and the value."""
    for each in fields(settings):
        value = getattr(settings, each.name)
        if not _fits(type(settings), each, value):
            wanted = allowed(type(settings), each)
            raise SettingsError(f"The setting {each.name} is {value!r}; it must be {wanted}.")


def allowed(kind: type, each: Field[Any]) -> str:
    """What a setting may be, in words; nothing where anything goes."""
    names = _kinds(each)
    words = range_of(kind, each.name).told(" or ".join(word for name, word in WORDS.items() if name in names))
    return f"{words}, or None" if "None" in names else words


def range_of(kind: type, name: str) -> Range:
    """The range of a setting; a subclass that only gives it another default keeps the one it had."""
    for base in kind.__mro__:
        found = vars(base).get("__dataclass_fields__", {}).get(name)
        if found is not None and "range" in found.metadata:
            return found.metadata["range"]  # type: ignore[no-any-return]
    return Range()


def _kinds(each: Field[Any]) -> set[str]:
    """Names of the plain types of a field; none where it takes other things as well."""
    text = each.type.__name__ if isinstance(each.type, type) else str(each.type)
    names = set(text.split(" | "))
    return names if names <= KINDS.keys() else set()


def _fits(kind: type, each: Field[Any], value: Any) -> bool:
    names = _kinds(each)
    if not names:
        return True
    if isinstance(value, bool) or value is None:
        return ("None" if value is None else "bool") in names
    if not isinstance(value, tuple(t for name in names for t in KINDS[name])):
        return False
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return range_of(kind, each.name).holds(value)
