"""`taps data list` and `taps data check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from taps.data.check import Check

app = typer.Typer(
    no_args_is_help=True, help="List data sets and check a copy of one before hours are spent on it."
)


@app.command("list")
def list_sets(as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table.")) -> None:
    """List the sets that can be called by name, and where each should lie below --root."""
    from taps.data.registry import named_sets

    if as_json:
        rows = [
            {
                "id": s.id,
                "name": s.name,
                "classes": s.classes,
                "images": s.images,
                "layout": s.layout,
                "template": s.template,
            }
            for s in named_sets().values()
        ]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("classes", justify="right")
    table.add_column("images", justify="right")
    table.add_column("layout below --root", overflow="fold")
    table.add_column("template", overflow="fold")
    for s in named_sets().values():
        table.add_row(s.id, f"{s.classes:,}", f"{s.images:,}", s.layout, s.template)
    Console().print(table)


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
        raise DataError(f"Where is {name}? Give --root, the folder that holds the data sets, or a path.")
    result = check_folder(name) if own else check_dataset(name, root or Path())
    if as_json:
        print(json.dumps(as_dict(result), indent=2, ensure_ascii=False))
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
        "name": result.name,
        "ok": result.ok,
        "root": None if result.root is None else str(result.root),
        "classes": result.classes,
        "images": result.images,
        "expected": result.expected,
        "findings": [{"level": f.level, "count": f.count, "text": f.text} for f in result.findings],
    }
