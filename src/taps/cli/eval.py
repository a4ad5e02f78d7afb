"""`taps eval`: measure methods on streams, predict first, label afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from taps.cli.options import parse_list, with_options
from taps.evaluate.measures import SHORT, Measure, find_measures
from taps.evaluate.options import Execution, Setup

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Methods = Annotated[
    str, typer.Option("--method", "--methods", help="Separated by commas; `taps methods` lists them.")
]
Baselines = Annotated[bool, typer.Option(help="Add zero_shot, source and view_ensemble to the methods.")]


@app.command("eval")
@with_options
def evaluate_command(
    setup: Setup,
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
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
    from rich.console import Console

    from taps.cluster.connect import find_ray
    from taps.evaluate.plan import plan_evaluation

    find_ray(how.ray)
    columns = find_measures(parse_list(measures))
    jobs, lengths = plan_evaluation(setup, wanted_methods(setup, parse_list(method), baselines))
    console = Console(stderr=as_json)
    outcome = carry_out(console, jobs, lengths, out, how)
    if as_json:
        print(json.dumps(outcome.rows))
    else:
        show(console, outcome.rows, out, columns)
    tell_unfinished(console, outcome)


def wanted_methods(setup: Setup, names: Sequence[str], baselines: bool) -> Sequence[str]:
    """The methods named, and before them the baselines where these are wanted."""
    from taps.evaluate import plan
    from taps.evaluate.jobs import ModelSpec

    if not baselines:
        return names
    trained = plan.has_prompts(ModelSpec(setup.model, setup.pretrained), setup.prompts)
    return plan.with_baselines(names, prompts=trained)


def carry_out(console: Any, jobs: Any, lengths: dict[str, int], out: Path, how: Execution) -> Any:
    """Run an evaluation under progress bars; Ctrl-C says how to go on."""
    from taps.cli.progress import RunsProgress
    from taps.evaluate.evaluate import evaluate

    given: dict[str, Any] = {}
    if how.ray is not None:
        from taps.cluster.runs import run_on_ray

        given["run"] = run_on_ray
    try:
        with RunsProgress(console) as progress:
            return evaluate(jobs, out, how, lengths=lengths, watcher=progress.watcher, **given)
    except KeyboardInterrupt:
        console.print(f"Stopped; every run is saved in {out}. {GO_ON}", markup=False, soft_wrap=True)
        raise


GO_ON = "Run the same command with --resume to go on."


def tell_unfinished(console: Any, outcome: Any) -> None:
    """One line for each run that is missing, and exit code 1."""
    for run in outcome.unfinished:
        console.print(
            f"unfinished: {run['dataset']} {run['method']} seed {run['seed']}: {run['why']}", markup=False
        )
    if outcome.unfinished:
        console.print(GO_ON)
        raise typer.Exit(1)


def show(console: Any, rows: list[dict[str, Any]], out: Path, columns: list[Measure]) -> None:
    """One line a method and data set, pooled over seeds; measures that no run has are left out."""
    from rich.table import Table

    from taps.evaluate.pooled import pool
    from taps.report.summary import by_method

    counts = {(cell.dataset, cell.method): cell for cell in by_method(rows)}
    cells = {(cell.dataset, cell.method): cell.measures for cell in pool(rows)}
    columns = [measure for measure in columns if any(measure.name in found for found in cells.values())]
    table = Table(box=None, pad_edge=False)
    heads = (
        "data set",
        "method",
        "seeds",
        "images",
        *(measure.heading for measure in columns),
        "to zero-shot",
    )
    for column in heads:
        table.add_column(column, justify="left" if column in ("data set", "method") else "right")
    for key in (*counts, *(key for key in cells if key not in counts)):
        cell, found = counts.get(key), cells[key]
        told = [measure.text(found[measure.name]) if measure.name in found else "" for measure in columns]
        gain = "" if cell is None or cell.gain is None else f"{100 * cell.gain:+.2f}"
        table.add_row(*key, *((str(cell.seeds), f"{cell.images:,}") if cell else ("", "")), *told, gain)
    console.print(table)
    console.print(f"Results: {out}   (taps report {out})", markup=False)
