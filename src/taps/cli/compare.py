"""`taps compare`: methods × data sets, evaluated or read from folders, as a leaderboard."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from taps.cli.eval import Baselines, Methods, carry_out, tell_unfinished, wanted_methods
from taps.cli.options import new_app, with_options
from taps.evaluate.options import Execution, Setup

app = new_app()

Folders = Annotated[
    list[str] | None, typer.Argument(help="Folders of `taps eval` or `taps compare` to take runs from.")
]
Out = Annotated[str | None, typer.Option(help="Folder for runs and page; by default the first folder given.")]
Measure = Annotated[str, typer.Option(help="What methods are ordered by: top1, ece, log_loss, …")]
Baseline = Annotated[str | None, typer.Option(help="The method to compare with; by default zero_shot.")]

Published = Annotated[
    bool, typer.Option("--published", help="Add means of the field as their authors print them, with CLIP.")
]


@app.command("compare")
@with_options
def compare_command(
    setup: Setup,
    how: Execution,
    folders: Folders = None,
    out: Out = None,
    method: Methods = "taps",
    baselines: Baselines = True,
    measure: Measure = "top1",
    baseline: Baseline = None,
    published: Published = False,
) -> None:
    """Compare methods over data sets: leaderboard.html, .tex, .csv and .json.

    With --dataset the runs are made first, as `taps eval` makes them (--resume goes on); without it they are
    taken from the folders. The page is one file: a table that sorts by a click, ranks with the methods that
    cannot be told apart, accuracy against time, labels and calibration. Cells link to pages about their runs.
    """
    from taps.cluster.connect import find_ray
    from taps.errors import SettingsError

    given = list(folders or ())
    place = out or next(iter(given), None)
    if place is None or not (given or setup.dataset):
        raise SettingsError("Give folders of results, or --dataset and --out for new ones.")
    find_ray(how.ray, how)  # before the slow imports
    from rich.console import Console

    from taps.evaluate.copies import working_folder
    from taps.evaluate.plan import plan_evaluation
    from taps.report.compare import leaderboard, summary, write_leaderboard
    from taps.report.published import published_means
    from taps.report.table import markdown

    console, outcome = Console(), None
    with ExitStack() as stack:
        opened = {name: stack.enter_context(working_folder(name)) for name in dict.fromkeys([place, *given])}
        folder, copies = opened[place]
        if setup.dataset:
            jobs, lengths = plan_evaluation(setup, wanted_methods(setup, method, baselines))
            outcome = carry_out(console, jobs, lengths, folder, how, copies)
            given = [place, *given]
        board = leaderboard([opened[name][0] for name in dict.fromkeys(given)], measure, baseline)
        written = [path.relative_to(folder) for path in write_leaderboard(board, folder, published=published)]
    print(board.markdown())
    print("\n".join(markdown(table) for table in (published_means() if published else ())), end="")
    for each in board.blocks:
        print(summary(each))
    for path in written:
        print(f"{place}/{path}")
    if outcome is not None:
        tell_unfinished(console, outcome)
