"""Tables and JSON on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from taps.files import json_text


def show_table(
    columns: Sequence[Column | str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    console: Console | None = None,
) -> None:
    """Print rows below headings, without lines between them."""
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(str, row))
    (console or Console()).print(table)


def show_json(value: Any, *, indent: int | None = 2) -> None:
    print(json_text(value, indent=indent, ensure_ascii=False))
