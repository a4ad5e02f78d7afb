"""`taps backup`: copy a store while the service runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def backup(
    store: Annotated[str, typer.Argument(help="The store: a folder, or postgresql://…")],
    place: Annotated[Path, typer.Argument(help="A folder that is empty or does not exist.")],
    files: Annotated[Path | None, typer.Option(help="Folder of images beside a PostgreSQL store.")] = None,
) -> None:
    """Copy a store while the service runs; the copy is a store of its own (`taps serve --store PLACE`)."""
    from taps.serve.backup import backup as copy
    from taps.serve.store import Store

    with Store.existing(store, files) as opened:
        copy(opened, place)
    print(f"The copy in {place} is whole.")
