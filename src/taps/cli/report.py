"""`taps report`: tables and pictures from the results of an evaluation."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command("report")
def report(
    directory: Annotated[Path, typer.Argument(help="The --out of `taps eval`; it need not be finished.")],
    baseline: Annotated[str, typer.Option(help="The method others are compared with.")] = "zero_shot",
    format: Annotated[str, typer.Option(help="Of md, tex, html, separated by commas.")] = "md,tex,html",
    plots: Annotated[bool, typer.Option(help="Draw pictures (needs the extra `plot`).")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the tables.")] = False,
) -> None:
    """Write report.md, report.tex and report.html (one file, pictures inside) into the folder.

    Accuracies with 95 % intervals over seeds, paired differences to a baseline, the paper's numbers where the
    set and the model are the paper's, labels, times, and pictures in plots/.
    """
    from taps.cli.options import parse_list
    from taps.report.pages import write_report

    if plots and find_spec("matplotlib") is None:
        print("No pictures: they need the extra `plot` (pip install 'taps-vlm[plot]').", file=sys.stderr)
    written = write_report(directory, baseline=baseline, formats=parse_list(format), plots=plots)
    if not quiet and (directory / "report.md") in written:
        text = (directory / "report.md").read_text(encoding="utf-8")
        print(text.split("\n## ")[0])
    for path in written:
        if path.suffix != ".png":
            print(path)
