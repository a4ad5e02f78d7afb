"""`taps recover`: make a damaged store usable again."""

from __future__ import annotations

from typing import Annotated

import typer

from taps.cli.options import StoreFiles, StorePlace, new_app

app = new_app()


@app.command()
def recover(
    store: StorePlace,
    files: StoreFiles = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Continue with an old copy of the folder; what it lacks is lost.")
    ] = False,
) -> None:
    """Set damaged snapshots aside and give up images that are lost, so that the service can go on.

    After a crash nothing needs to be done: `taps serve` recovers by itself. This is for damaged files, when
    there is no backup to put them back from. The service must not be running.
    """
    from taps.serve.doctor import recover as repair
    from taps.serve.service import hold
    from taps.serve.store import Store

    with Store.existing(store, files) as opened, hold(opened):
        opened.pairing.check(copies=yes)
        done = list(repair(opened))
        opened.pairing.mark()
    for sentence in done or ["There was nothing to repair."]:
        print(sentence)
