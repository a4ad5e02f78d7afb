"""`taps backup`: copy a store while the service runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from taps.cli.options import StoreFiles, StorePlace, new_app

app = new_app()


@app.command()
def backup(
    store: StorePlace,
    place: Annotated[Path, typer.Argument(help="A folder that is empty or does not exist.")],
    files: StoreFiles = None,
) -> None:
    """Copy a store while the service runs; the copy is a store of its own (`taps serve --store PLACE`)."""
    from taps.serve.backup import backup as copy
    from taps.serve.store import Store

    with Store.existing(store, files) as opened:
        copy(opened, place)
    print(f"The copy in {place} is whole.")
