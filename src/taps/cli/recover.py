"""`taps recover`: make a damaged store usable again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def recover(
    store: Annotated[str, typer.Argument(help="The store: a folder, or postgresql://…")],
    files: Annotated[Path | None, typer.Option(help="Folder of images beside a PostgreSQL store.")] = None,
) -> None:
    """Set damaged snapshots aside and give up images that are lost, so that the service can go on.

    After a crash nothing needs to be done: `taps serve` recovers by itself. This is for damaged files, when
    there is no backup to put them back from. The service must not be running.
    """
    from taps.serve.recover import recover as repair
    from taps.serve.service import hold
    from taps.serve.store import Store

    with Store.existing(store, files) as opened, hold(opened):
        done = list(repair(opened))
    for sentence in done or ["There was nothing to repair."]:
        print(sentence)
