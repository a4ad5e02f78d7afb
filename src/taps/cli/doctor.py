"""`taps doctor`: is everything in a store as it should be?"""

from __future__ import annotations

import typer

from taps.cli.options import StoreFiles, StorePlace, new_app

app = new_app()


@app.command()
def doctor(
    store: StorePlace,
    files: StoreFiles = None,
) -> None:
    """Check the tables, the logs, every snapshot and every image; say what is wrong and what to do.

    Changes nothing, and may be run beside a running service. Exits with 1 where something is wrong.
    """
    from taps.serve.doctor import examine
    from taps.serve.store import Store

    with Store.existing(store, files) as opened:
        findings = list(examine(opened))
    for finding in findings:
        print(finding.sentence if finding.bad else f"(Good to know: {finding.sentence})")
    if any(finding.bad for finding in findings):
        raise typer.Exit(1)
    print("Everything acknowledged is there, and whole.")
