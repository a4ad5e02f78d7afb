"""`taps report`: tables and pictures from the results of an evaluation."""

from __future__ import annotations

from typing import Annotated

import typer

from taps.cli.options import new_app, parse_list

app = new_app()


@app.command("report")
def report(
    directory: Annotated[str, typer.Argument(help="The --out of `taps eval`; it need not be finished.")],
    baseline: Annotated[
        str | None, typer.Option(help="The method to compare with; by default zero_shot.")
    ] = None,
    measures: Annotated[
        str, typer.Option(help="Columns of the table of costs, separated by commas.")
    ] = "all",
    format: Annotated[str, typer.Option(help="Of md, tex, html, separated by commas.")] = "md,tex,html",
    plots: Annotated[bool, typer.Option(help="Draw pictures.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the tables.")] = False,
) -> None:
    """Write report.md, report.tex and report.html (one file, pictures inside) into the folder.

    Accuracies with 95 % intervals over seeds, paired differences to a baseline, the paper's numbers where the
    set and the model are the paper's, every measure, settings, and pictures in plots/. A page for each method
    on each data set: classes, confusions, the most confident mistakes with their images.
    """
    from taps.evaluate.copies import working_folder
    from taps.report.pages import write_report

    with working_folder(directory) as (folder, _):
        written = write_report(
            folder,
            baseline=baseline,
            formats=parse_list(format),
            measures=parse_list(measures),
            plots=plots,
        )
        if not quiet and (folder / "report.md") in written:
            text = (folder / "report.md").read_text(encoding="utf-8")
            print(text.split("\n## ")[0])
    for path in written:
        if path.suffix != ".svg":
            print(f"{directory}/{path.relative_to(folder)}")
