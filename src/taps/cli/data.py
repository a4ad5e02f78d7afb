"""`taps data list` and `taps data check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Column

from taps.cli.options import new_app
from taps.cli.tables import show_json, show_table

if TYPE_CHECKING:
    from taps.data.check import Check

app = new_app(no_args_is_help=True, help="List data sets, or check a copy of one.")


@app.command("list")
def list_sets(as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table.")) -> None:
    """List the sets that can be called by name, and where each should lie below --root."""
    from taps.data.registry import named_sets

    if as_json:
        names = ("id", "name", "classes", "images", "layout", "template")
        rows = [{name: getattr(each, name) for name in names} for each in named_sets().values()]
        show_json(rows)
        return
    columns = [
        Column("name", no_wrap=True),
        *(Column(name, justify="right") for name in ("classes", "images")),
        *(Column(name, overflow="fold") for name in ("layout below --root", "template")),
    ]
    show_table(
        columns,
        [(s.id, f"{s.classes:,}", f"{s.images:,}", s.layout, s.template) for s in named_sets().values()],
    )


@app.command("check")
def check(
    name: str = typer.Argument(
        ..., help="Name of a set, as in `taps data list`; or a folder or zip of your own."
    ),
    root: Path | None = typer.Option(
        None, "--root", envvar="TAPS_DATA", help="Folder that holds the named data sets."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of text."),
) -> None:
    """Say what is missing, wrong or cannot be read. Exit code 1 if anything is."""
    from taps.data import find_set
    from taps.data.check import check_dataset, check_folder
    from taps.errors import DataError

    own = find_set(name) is None or (root is None and Path(name).exists())
    if not own and root is None:
        raise DataError(f"{name} needs --root, the folder that holds the data sets, or a path.")
    result = check_folder(name) if own else check_dataset(name, root or Path())
    if as_json:
        show_json(as_dict(result))
    else:
        for finding in result.findings:
            print(f"{finding.level}: {finding.text}")
        state = ("all can be read" if own else "as published") if result.ok else "see above"
        print(
            f"{result.name}: {result.images:,} of {result.expected:,} images, "
            f"{result.classes:,} classes, {state}."
        )
    raise typer.Exit(0 if result.ok else 1)


def as_dict(result: Check) -> dict[str, object]:
    """A check for JSON."""
    return {
        **{name: getattr(result, name) for name in ("name", "ok", "classes", "images", "expected")},
        "root": None if result.root is None else str(result.root),
        "findings": [{"level": f.level, "count": f.count, "text": f.text} for f in result.findings],
    }
