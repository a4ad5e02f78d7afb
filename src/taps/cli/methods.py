"""`taps methods`."""

from __future__ import annotations

import json

import typer

app = typer.Typer(add_completion=False)


@app.command()
def methods(
    name: str | None = typer.Argument(None, help="A method: list its settings and their defaults."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """List the methods with one line each, or the settings of one of them."""
    from dataclasses import fields

    from taps.methods.registry import METHODS, find_method

    if name is None:
        rows: dict[str, object] = {key: method.line for key, method in METHODS.items()}
        columns = ("method", "what it does")
    else:
        rows = {field.name: field.default for field in fields(find_method(name).settings)}
        columns = ("setting", "default")
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(columns[0], no_wrap=True)
    table.add_column(columns[1], overflow="fold")
    for key, value in rows.items():
        table.add_row(key, str(value))
    Console().print(table)
