"""`taps eval`, `compare` and `report`: methods are measured on streams, ranked, and described."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column

from taps.cli.options import new_app, parse_list, with_options
from taps.cli.terminal import RunsProgress, show_json, show_table
from taps.errors import SettingsError
from taps.study.evaluate.measures import SHORT, Measure, find_measures
from taps.study.evaluate.options import Execution, Setup

if TYPE_CHECKING:
    from taps.study.evaluate.evaluate import Outcome
    from taps.study.evaluate.jobs import Job

app = new_app()
NAMES, ALWAYS, MARGIN = ("data set", "method"), ("seeds", "images", "top-1 %", "to zero-shot"), 2
GO_ON = "Run the same command with --resume to continue."
Methods = Annotated[str, typer.Option(help="Separated by commas; `taps methods` lists them.")]
Out = Annotated[str, typer.Option(help="Folder for the results.")]
Baseline = Annotated[str | None, typer.Option(help="The method to compare with; by default zero_shot.")]
Baselines = Annotated[bool, typer.Option(help="Add zero_shot, source and view_ensemble to the methods.")]


@app.command("eval")
@with_options
def evaluate_command(
    setup: Setup,
    out: Out,
    how: Execution,
    method: Methods = "taps",
    baselines: Baselines = True,
    measures: Annotated[
        str,
        typer.Option(help="Columns of the table, separated by commas, or all; results.json has every one."),
    ] = ",".join(SHORT),
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Measure methods on streams: predict, commit the prediction, only then look at the label.

    All methods see the same images in the same order. --resume continues killed runs, to the same result.
    Afterwards: taps report DIR.
    """
    from taps.cluster.connect import find_ray

    find_ray(how.ray, how)  # before the slow imports
    from taps.disk import check_free
    from taps.study.evaluate.evaluate import is_evaluation
    from taps.study.evaluate.plan import plan_evaluation

    columns = find_measures(parse_list(measures))
    jobs, lengths = plan_evaluation(setup, wanted_methods(setup, method, baselines))
    console = Console(stderr=as_json)
    check_free(Path(out), is_evaluation)
    outcome = carry_out(console, jobs, lengths, Path(out), how)
    if as_json:
        show_json(outcome.rows, indent=None)
    else:
        show(console, outcome.rows, out, columns)
    tell_learned(console, jobs, setup)
    tell_unfinished(console, outcome)


@app.command("compare")
@with_options
def compare(
    setup: Setup,
    how: Execution,
    folders: Annotated[
        list[str] | None, typer.Argument(help="Folders of `taps eval` or `taps compare` to take runs from.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Folder for runs and page; by default the first folder given.")
    ] = None,
    method: Methods = "taps",
    baselines: Baselines = True,
    measure: Annotated[
        str, typer.Option(help="What methods are ordered by: top1, ece, log_loss, …")
    ] = "top1",
    baseline: Baseline = None,
) -> None:
    """Compare methods over data sets: leaderboard.html, .tex, .csv and .json.

    With --dataset the runs are made first, as by `taps eval` (--resume continues); without it they are taken
    from the folders. The page is one file: a table that sorts by a click, accuracy against
    time, labels and calibration. Cells link to pages about their runs.
    """
    from taps.cluster.connect import find_ray

    given = list(folders or ())
    place = out or next(iter(given), None)
    if place is None or not (given or setup.dataset):
        raise SettingsError("Give folders of results, or --dataset and --out for new ones.")
    find_ray(how.ray, how)  # before the slow imports
    from taps.disk import check_free
    from taps.study.evaluate.evaluate import is_evaluation
    from taps.study.evaluate.plan import plan_evaluation
    from taps.study.report.compare import leaderboard, summary, write_leaderboard

    console, outcome = Console(), None
    folder = Path(place)
    check_free(folder, is_evaluation)
    if setup.dataset:
        jobs, lengths = plan_evaluation(setup, wanted_methods(setup, method, baselines))
        outcome = carry_out(console, jobs, lengths, folder, how)
        given = [place, *given]
    board = leaderboard([Path(name) for name in dict.fromkeys(given)], measure, baseline)
    written = [path.relative_to(folder) for path in write_leaderboard(board, folder)]
    print(board.markdown())
    for each in board.blocks:
        print(summary(each))
    for path in written:
        print(f"{place}/{path}")
    if outcome is not None:
        tell_unfinished(console, outcome)


@app.command("report")
def report(
    directory: Annotated[str, typer.Argument(help="The --out of `taps eval`; it need not be finished.")],
    baseline: Baseline = None,
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
    on each data set: classes, confusions, the most confident mistakes with their images. Where a run is
    unfinished the tables say so, and the exit code is 1.
    """
    from taps.study.evaluate.results import unfinished_runs
    from taps.study.report.pages import write_report

    folder = Path(directory)
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
    if unfinished_runs(folder):
        raise typer.Exit(1)


def wanted_methods(setup: Setup, method: str, baselines: bool) -> Sequence[str]:
    """The methods that --method names, after the baselines where these are wanted."""
    from taps.study.evaluate import plan
    from taps.study.evaluate.jobs import ModelSpec

    names = parse_list(method)
    if not baselines:
        return names
    trained = plan.has_prompts(ModelSpec(setup.model, setup.pretrained), setup.prompts)
    return plan.with_baselines(names, prompts=trained)


def carry_out(
    console: Console,
    jobs: Sequence[Job],
    lengths: dict[str, int],
    out: Path,
    how: Execution,
) -> Outcome:
    """Run an evaluation under progress bars; says first what will fail, and on Ctrl-C how to continue."""
    from taps.study.evaluate.evaluate import evaluate_jobs
    from taps.study.evaluate.needs import lacking, sentences

    for sentence in sentences(lacking(jobs)):
        console.print(sentence, markup=False, soft_wrap=True)

    given: dict[str, Any] = {}
    if how.ray is not None:
        from taps.cluster.runs import run_on_ray

        given["run"] = run_on_ray
    try:
        with RunsProgress(console) as progress:
            return evaluate_jobs(jobs, out, how, lengths=lengths, watcher=progress.watcher, **given)
    except KeyboardInterrupt:
        console.print(f"Stopped; every run is saved in {out}. {GO_ON}", markup=False, soft_wrap=True)
        raise


def tell_learned(console: Console, jobs: Sequence[Job], setup: Setup) -> None:
    """Say which methods with a learned context take no richer texts, where these were given."""
    from taps.study.evaluate.pooled import RICHER, block_of, learned_beside_texts

    richer = any(block_of(job.method, job.settings) == RICHER for job in jobs)
    sentence = learned_beside_texts(job.method for job in jobs)
    if sentence and (richer or setup.texts is not None):
        console.print(sentence, markup=False, soft_wrap=True)


def tell_unfinished(console: Console, outcome: Outcome) -> None:
    """One line for each run that is missing, and exit code 1."""
    for run in outcome.unfinished:
        line = f"unfinished: {run['dataset']} {run['method']} seed {run['seed']}: {run['why']}"
        console.print(line, markup=False, soft_wrap=True)
    if outcome.unfinished:
        console.print(GO_ON)
        raise typer.Exit(1)


def show(console: Console, rows: list[dict[str, Any]], out: str, measures: list[Measure]) -> None:
    """One line a method and data set, pooled over seeds; a table for each kind of class texts."""
    from taps.study.evaluate.pooled import RICHER, split_rows

    blocks = split_rows(rows)
    for block, those in blocks.items():
        if len(blocks) > 1 or block == RICHER:
            console.print(f"{block}:")
        show_columns(console, columns_of(those, measures))
    console.print(f"Results: {out}   (taps report {out})", markup=False, soft_wrap=True)


def show_columns(console: Console, columns: dict[str, list[str]]) -> None:
    """A table of the columns that fit side by side, and the names of the others."""
    shown = fitting(columns, console.width)
    heads = [Column("\n".join(each.split()), justify="left" if each in NAMES else "right") for each in shown]
    show_table(heads, zip(*shown.values(), strict=True), console=console)
    console.print()
    if left_out := [heading for heading in columns if heading not in shown]:
        said = f"No room for {', '.join(left_out)}: results.json has all; --measures chooses."
        console.print(said, soft_wrap=True)


def columns_of(rows: list[dict[str, Any]], measures: list[Measure]) -> dict[str, list[str]]:
    """The table's cells by the headings of its columns; measures that no run has are left out."""
    from taps.study.evaluate.pooled import pool
    from taps.study.evaluate.results import method_rank

    # What is over all 15 corruptions after ImageNet-C has no images of its own, and comes last.
    found = sorted(pool(rows), key=lambda cell: (not cell.images, cell.dataset, method_rank(cell.method)))
    texts = {
        each.heading: [
            each.text(value) if (value := cell.measures.get(each.name)) is not None else "" for cell in found
        ]
        for each in measures
    }
    gains = ["" if cell.gain is None else f"{100 * cell.gain:+z.2f}" for cell in found]
    return {
        "data set": [cell.dataset for cell in found],
        "method": [cell.method for cell in found],
        "seeds": [str(cell.seeds) for cell in found],
        "images": [f"{cell.images:,}" if cell.images else "" for cell in found],
        **{heading: cells for heading, cells in {**texts, "to zero-shot": gains}.items() if any(cells)},
    }


def fitting(columns: dict[str, list[str]], room: int) -> dict[str, list[str]]:
    """The columns that fit into so many characters; of the measures the last ones are left out first."""
    shown = dict(columns)
    for heading in reversed([each for each in columns if each not in (*NAMES, *ALWAYS)]):
        if sum(map(_width, shown.items())) - MARGIN <= room:
            break
        del shown[heading]
    return shown


def _width(column: tuple[str, list[str]]) -> int:
    """Characters of a column and its margin; the words of a heading stand below each other."""
    heading, cells = column
    return max(map(len, (*heading.split(), *cells))) + MARGIN
