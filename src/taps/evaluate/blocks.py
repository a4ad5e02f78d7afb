"""Tables have two blocks that are never mixed: one template a class, and richer texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from taps.errors import SettingsError
from taps.methods.registry import find_method
from taps.prompts.texts import list_templates

ONE, RICHER = "one template", "richer texts"
BLOCKS = (ONE, RICHER)


def block_of(method: str, settings: Mapping[str, Any]) -> str:
    """The block of a run. A learned context takes the place of hand-written texts, whatever these are.

    >>> block_of("zero_shot", {"template": "imagenet80"}), block_of("tpt", {"template": "imagenet80"})
    ('richer texts', 'one template')
    """
    if is_learned(method) or settings.get("prompts") is not None:
        return ONE
    several = settings.get("texts") is not None or len(list_templates(settings.get("template"))) > 1
    return RICHER if several else ONE


def is_learned(method: str) -> bool:
    """Whether a method has a learned context; False for one that is not known here."""
    try:
        return find_method(method).learned
    except SettingsError:
        return False


def split_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of results by block; blocks without any are left out. Rows of 0.2 do not say theirs."""
    found: dict[str, list[dict[str, Any]]] = {block: [] for block in BLOCKS}
    for row in rows:
        found[row.get("texts", ONE)].append(dict(row))
    return {block: those for block, those in found.items() if those}


def learned_beside_texts(methods: Iterable[str]) -> str:
    """A sentence about those of some methods that take no richer texts; nothing where all do."""
    found = [name for name in dict.fromkeys(methods) if is_learned(name)]
    told = f"A learned context takes their place: such methods stand in the table of {ONE}."
    return f"Without the texts given: {', '.join(found)}. {told}" if found else ""
