"""`taps eval`: measure methods on streams, predict first, label afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column

from taps.cli.options import new_app, parse_list, with_options
from taps.cli.terminal import RunsProgress, show_json, show_table
from taps.evaluate.measures import SHORT, Measure, find_measures
from taps.evaluate.options import Execution, Setup

if TYPE_CHECKING:
    from rich.console import Console

    from taps.evaluate.copies import Copies
    from taps.evaluate.evaluate import Outcome
    from taps.evaluate.jobs import Job

app = new_app()
GO_ON = "Run the same command with --resume to go on."
Methods = Annotated[
    str, typer.Option("--method", "--methods", help="Separated by commas; `taps methods` lists them.")
]
Out = Annotated[str, typer.Option(help="Folder for the results, or any address of fsspec: s3://bucket/name.")]
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

    All methods see the same images in the same order. Killed runs go on with --resume, to the same result.
    Afterwards: taps report DIR.
    """
    from taps.cluster.connect import find_ray

    find_ray(how.ray, how)  # before the slow imports
    from rich.console import Console

    from taps.evaluate.copies import working_folder
    from taps.evaluate.plan import plan_evaluation

    columns = find_measures(parse_list(measures))
    jobs, lengths = plan_evaluation(setup, wanted_methods(setup, method, baselines))
    console = Console(stderr=as_json)
    with working_folder(out) as (folder, copies):
        outcome = carry_out(console, jobs, lengths, folder, how, copies)
    if as_json:
        show_json(outcome.rows, indent=None)
    else:
        show(console, outcome.rows, out, columns)
    tell_learned(console, jobs, setup)
    tell_unfinished(console, outcome)


def wanted_methods(setup: Setup, method: str, baselines: bool) -> Sequence[str]:
    """The methods that --method names, after the baselines where these are wanted."""
    from taps.evaluate import plan
    from taps.evaluate.jobs import ModelSpec

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
    copies: Copies | None,
) -> Outcome:
    """Run an evaluation under progress bars; Ctrl-C says how to go on."""
    from taps.evaluate.evaluate import evaluate

    given: dict[str, Any] = {"copies": copies}
    if how.ray is not None:
        from taps.cluster.runs import run_on_ray

        given["run"] = partial(run_on_ray, copies=copies)
    try:
        with RunsProgress(console) as progress:
            return evaluate(jobs, out, how, lengths=lengths, watcher=progress.watcher, **given)
    except KeyboardInterrupt:
        place = copies.url if copies else out
        console.print(f"Stopped; every run is saved in {place}. {GO_ON}", markup=False, soft_wrap=True)
        raise


def tell_learned(console: Console, jobs: Sequence[Job], setup: Setup) -> None:
    """Say which methods with a learned context take no richer texts, where these were given."""
    from taps.evaluate.pooled import RICHER, block_of, learned_beside_texts

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
    from taps.evaluate.pooled import RICHER, split_rows

    blocks = split_rows(rows)
    for block, those in blocks.items():
        if len(blocks) > 1 or block == RICHER:
            console.print(f"{block}:")
        show_columns(console, columns_of(those, measures))
    console.print(f"Results: {out}   (taps report {out})", markup=False, soft_wrap=True)


def show_columns(console: Console, columns: dict[str, list[str]]) -> None:
    """A table; where the columns do not fit side by side, several tables with some of them each."""
    names = {heading: columns.pop(heading) for heading in ("data set", "method")}
    for part in side_by_side(columns, console.width - sum(map(_width, names.items()))):
        shown = names | {heading: columns[heading] for heading in part}
        heads = [
            Column("\n".join(heading.split()), justify="left" if heading in names else "right")
            for heading in shown
        ]
        show_table(heads, zip(*shown.values(), strict=True), console=console)
        console.print()


def columns_of(rows: list[dict[str, Any]], measures: list[Measure]) -> dict[str, list[str]]:
    """The table's cells by the headings of its columns; measures that no run has are left out."""
    from taps.evaluate.pooled import pool
    from taps.evaluate.results import method_rank

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


def side_by_side(columns: dict[str, list[str]], room: int) -> list[list[str]]:
    """Headings in groups, each as many as fit into so many characters, one at least."""
    groups: list[list[str]] = [[]]
    left = room
    for heading, cells in columns.items():
        width = _width((heading, cells))
        if width > left and groups[-1]:
            groups.append([])
            left = room
        groups[-1].append(heading)
        left -= width
    return groups


def _width(column: tuple[str, list[str]]) -> int:
    """Characters of a column and its margin; the words of a heading stand below each other."""
    heading, cells = column
    return max(map(len, (*heading.split(), *cells))) + 2
