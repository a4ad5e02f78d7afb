"""`taps doctor`: is everything in a store as it should be?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def doctor(
    store: Annotated[str, typer.Argument(help="The store: a folder, or postgresql://…")],
    files: Annotated[Path | None, typer.Option(help="Folder of images beside a PostgreSQL store.")] = None,
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
