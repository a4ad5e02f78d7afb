"""Writes src/taps/methods/typed.py: settings of all methods, for type checkers. Run it after adding one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from taps.methods.registry import all_methods

TARGET = Path(__file__).resolve().parent.parent / "src" / "taps" / "methods" / "typed.py"
HEAD = '''"""The settings of all methods, for type checkers. Written by recipes/typed_settings.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from taps.prompts import Prompts
    from taps.prompts.source import SourceStats


class AnySettings(TypedDict, total=False):
    """Every setting some method has. Which one has which is checked when a learner is made."""

'''


def text() -> str:
    """The module: one line a setting, its type that of all methods that have it."""
    kinds: dict[str, set[str]] = {}
    for method in all_methods().values():
        if method.build.__module__.startswith("taps."):
            for field in fields(method.settings):
                kinds.setdefault(field.name, set()).update(_names(field.type))
    return HEAD + "".join(f"    {name}: {_union(found)}\n" for name, found in sorted(kinds.items()))


def _names(kind: object) -> list[str]:
    return (kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))).split(" | ")


def _union(kinds: set[str]) -> str:
    return " | ".join(sorted(kinds, key=lambda kind: (kind == "None", kind)))


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
