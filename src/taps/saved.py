"""What a saved state may hold. Each part says it where it is restored; what is not so is refused here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from taps.errors import StateError

Test = Callable[[Any], bool]
Shape = tuple[int | str | range, ...]  # equal letters stand for equal sizes, a range for one of its sizes
LARGEST = 1e200  # of a number that is saved; its square is finite
MOST = 1e9  # of an entry of an array
COUNT = 1 << 53


def whole(at_most: int = COUNT, at_least: int = 0) -> Test:
    """A whole number, such as an index below `at_most` + 1."""
    return lambda value: isinstance(value, int) and not flag(value) and at_least <= value <= at_most


def real(at_least: float = -LARGEST, at_most: float = LARGEST) -> Test:
    """A finite number."""
    return lambda value: isinstance(value, int | float) and not flag(value) and at_least <= value <= at_most


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def text(value: Any) -> bool:
    return isinstance(value, str)


def maybe(test: Test) -> Test:
    """The same, or None."""
    return lambda value: value is None or test(value)


def check_plain(value: Any, wanted: Any, name: str = "the state") -> None:
    """Refuse plain values that are not as `wanted`.

    Args:
        value: As JSON has it.
        wanted: A test of one value; `{name: wanted}` for an object, whose other members are ignored;
            `(wanted, wanted)` for a list of so many values; `[wanted]` for a list of any number.

    >>> check_plain({"asked": 2, "rows": [[1, 0.5]]}, {"asked": whole(), "rows": [(whole(), real())]})
    >>> check_plain({"asked": -1}, {"asked": whole()}, "policy")
    Traceback (most recent call last):
    taps.errors.StateError: The saved state is damaged: policy.asked is -1.
    """
    if isinstance(wanted, dict):
        right, inner = isinstance(value, dict) and wanted.keys() <= value.keys(), list(wanted.items())
    elif isinstance(wanted, tuple | list):
        row = isinstance(wanted, tuple)
        right = isinstance(value, list | tuple) and (not row or len(value) == len(wanted))
        inner = list(enumerate(wanted if row else wanted * len(value))) if right else []
    else:
        right, inner = wanted(value), []
    if not right:
        raise StateError(f"The saved state is damaged: {name} is {repr(value)[:60]}.")
    for key, test in inner:
        check_plain(value[key], test, f"{name}.{key}")


def check_arrays(
    found: Mapping[str, Any],
    wanted: Mapping[str, Shape],
    *,
    kind: str = "float64",
    at_least: float = -MOST,
    at_most: float = MOST,
    sizes: dict[str, int] | None = None,
) -> None:
    """Refuse arrays or tensors that are missing, of another type or shape, or have entries out of range.

    Args:
        found: The arrays that were saved.
        wanted: The shapes of those that are looked at.
        kind: Their type.
        at_least: Of every entry; NaN is out of range.
        at_most: Of every entry.
        sizes: What the letters stand for so far; those met are added.
    """
    sizes = {} if sizes is None else sizes
    for name, shape in wanted.items():
        if name not in found:
            raise StateError(f"The saved state is damaged: it has no {name}.")
        given, own = tuple(found[name].shape), str(found[name].dtype).removeprefix("torch.")
        if own != kind or len(given) != len(shape) or not all(map(_sized(sizes), given, shape)):
            told = ", ".join(str(sizes.get(str(each), each)) for each in shape)
            raise StateError(
                f"The saved state does not fit: {name} is {own} {given}, not {kind} ({told}); "
                "use the saved model and settings."
            )
        if kind != "bool" and math.prod(given):
            low, high = float(found[name].min()), float(found[name].max())
            if not (at_least <= low and high <= at_most):
                raise StateError(
                    f"The saved state is damaged: {name} lies between {low:g} and {high:g}, "
                    f"not between {at_least:g} and {at_most:g}."
                )


def check_features(name: str, features: Any) -> None:
    """Refuse features [..., d] that are longer than 1."""
    if math.prod(features.shape) and not float((features * features).sum(-1).max()) < 1.2:
        raise StateError(f"The saved state is damaged: a feature in {name} is longer than 1.")


def _sized(sizes: dict[str, int]) -> Callable[[int, int | str | range], bool]:
    def fits(size: int, wanted: int | str | range) -> bool:
        if isinstance(wanted, str):
            return sizes.setdefault(wanted, size) == size
        return size in wanted if isinstance(wanted, range) else size == wanted

    return fits


def check_like(found: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Refuse arrays that are not as those of an object just made.

    There a size of 0 stands for any size, and infinite numbers mark what is empty. One number is a count.
    """
    for name, own in mine.items():
        shape = tuple(size or f"{name} {axis}" for axis, size in enumerate(own.shape))
        kind = str(own.dtype).removeprefix("torch.")
        low, high = (float(own.min()), float(own.max())) if kind != "bool" and own.numel() else (0.0, 0.0)
        at_least = min(-MOST if own.shape else 0.0, low)
        check_arrays(found, {name: shape}, kind=kind, at_least=at_least, at_most=max(MOST, high))
