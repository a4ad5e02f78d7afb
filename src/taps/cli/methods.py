"""`taps methods`."""

from __future__ import annotations

import typer
from rich.table import Column

from taps.cli.options import new_app
from taps.cli.tables import show_json, show_table

app = new_app()


@app.command()
def methods(
    name: str | None = typer.Argument(None, help="A method: list its settings and their defaults."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """List the methods with one line each, or the settings of one of them."""
    from dataclasses import fields

    from taps.methods.registry import all_methods, find_method, settings
    from taps.methods.settings import allowed

    if name is None:
        known = all_methods()
        rows: dict[str, object] = {key: method.line for key, method in known.items()}
        columns = ["method", "asks", "what it does"]
        cells = [(key, "yes" if method.asks else "", method.line) for key, method in known.items()]
    else:
        rows, kind = settings(name), find_method(name).settings
        columns = ["setting", "default", "allowed"]
        cells = [(each.name, str(each.default), allowed(kind, each)) for each in fields(kind)]
    if as_json:
        show_json(rows)
        return
    show_table([Column(name, no_wrap=name == columns[0], overflow="fold") for name in columns], cells)
