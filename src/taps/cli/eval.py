"""`taps eval`: measure methods on streams, predict first, label afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command("eval")
def evaluate_command(
    dataset: Annotated[
        str,
        typer.Option("--dataset", "--data", help="Names (`taps data list`) or paths, separated by commas."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results.")],
    method: Annotated[
        str,
        typer.Option("--method", "--methods", help="Separated by commas; `taps methods` lists them."),
    ] = "taps",
    model: Annotated[str, typer.Option(help="pocket, ViT-B-16, a checkpoint's path, …")] = "pocket",
    pretrained: Annotated[
        str | None, typer.Option(help="Weights for an architecture: a file, openai, laion2b.")
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(help="Trained prompts: a directory, or a directory with one a family.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Source statistics made by `taps stats`.")] = None,
    root: Annotated[
        Path | None, typer.Option(envvar="TAPS_DATA", help="Folder that holds the named data sets.")
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="One run each: order of the stream and everything random.")
    ] = "1,2,3",
    rate: Annotated[float | None, typer.Option(help="Share of images to ask about.")] = None,
    buffer: Annotated[int | None, typer.Option(help="How many labelled images are kept.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first so many images of each order.")] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Published settings: auto (each data set's own), or a name such as dtd."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting: name=value; methods without it ignore it."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(help="Zero-shot sentence, such as 'a photo of a {}.'; own for the data set's."),
    ] = None,
    corrupt: Annotated[
        str | None, typer.Option(help="See every image through a corruption, or `mix`.")
    ] = None,
    severity: Annotated[int, typer.Option(help="Of the corruption, 1 to 5.")] = 3,
    noise: Annotated[float, typer.Option(help="Share of the expert's answers that are wrong.")] = 0.0,
    delay: Annotated[int, typer.Option(help="Images that pass before an answer comes.")] = 0,
    baselines: Annotated[
        bool, typer.Option(help="Add zero_shot, source and view_ensemble to the methods.")
    ] = True,
    jobs: Annotated[int, typer.Option(help="Runs side by side, each a process with one thread.")] = 1,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Save and stop after so long.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with what is in the folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Measure methods on streams: predict, commit the prediction, only then look at the label.

    All methods see the same images in the same order. Killed runs go on with --resume, to the same result.
    Afterwards: taps report DIR.
    """
    import time

    from rich.console import Console

    from taps.cli.common import parse_settings
    from taps.cli.progress import RunsProgress
    from taps.evaluate import plan
    from taps.evaluate.evaluate import evaluate
    from taps.evaluate.jobs import ModelSpec, StreamSpec

    console = Console(stderr=as_json)
    given = parse_settings(set_ or [])
    model_spec = ModelSpec(model, pretrained)
    names = parse_list(method)
    if baselines:
        names = plan.with_baselines(names, prompts=plan.has_prompts(model_spec, prompts))
    plan.check_values(names, given)
    streams = plan.open_streams(
        [
            StreamSpec(name, None if root is None else str(root), corrupt, severity if corrupt else 3)
            for name in parse_list(dataset)
        ]
    )
    values = {"rate": rate, "buffer": buffer, "source": source, **given}
    runs = []
    for stream, loaded in streams:
        sentence = loaded.template if template == "own" else template
        runs += plan.make_jobs(
            [stream],
            model_spec,
            names,
            parse_seeds(seeds),
            values | {"template": sentence},
            prompts=prompts,
            preset=preset,
            limit=limit,
            noise=noise,
            delay=delay,
        )
    order = {seed: place for place, seed in enumerate(parse_seeds(seeds))}
    runs.sort(key=lambda job: order[job.seed])  # whole tables of fewer seeds, should time run out
    with RunsProgress(console) as progress:
        outcome = evaluate(
            runs,
            out,
            processes=jobs,
            device=device,
            resume=resume,
            deadline=None if minutes is None else time.time() + 60 * minutes,
            lengths={stream.name: len(loaded) for stream, loaded in streams},
            watcher=progress.watcher,
        )
    if as_json:
        print(json.dumps(outcome.rows))
    else:
        show(console, outcome.rows, out)
    for run in outcome.unfinished:
        console.print(
            f"unfinished: {run['dataset']} {run['method']} seed {run['seed']}: {run['why']}", markup=False
        )
    if outcome.unfinished:
        console.print("Run the same command with --resume to go on.")
        raise typer.Exit(1)


def parse_list(text: str) -> list[str]:
    """Things separated by commas.

    >>> parse_list("taps, tpt,taps")
    ['taps', 'tpt']
    """
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def parse_seeds(text: str) -> list[int]:
    """Whole numbers of 0 or more, separated by commas."""
    from taps.errors import SettingsError

    parts = parse_list(text)
    if not parts or not all(part.isdigit() for part in parts):
        raise SettingsError(f"--seeds {text!r} is not a list of whole numbers such as 1,2,3.")
    return [int(part) for part in parts]


def show(console: Any, rows: list[dict[str, Any]], out: Path) -> None:
    """One line a method and data set: mean over seeds."""
    from rich.table import Table

    from taps.report.summary import by_method

    table = Table(box=None, pad_edge=False)
    for column in ("data set", "method", "seeds", "images", "top-1 %", "to zero-shot", "asked %", "ms (p50)"):
        table.add_column(column, justify="left" if column in ("data set", "method") else "right")
    for cell in by_method(rows):
        gain = "" if cell.gain is None else f"{100 * cell.gain:+.2f}"
        table.add_row(
            cell.dataset,
            cell.method,
            str(cell.seeds),
            f"{cell.images:,}",
            f"{100 * cell.top1:.2f}",
            gain,
            f"{100 * cell.rate:.1f}",
            f"{cell.ms:.1f}",
        )
    console.print(table)
    console.print(f"Results: {out}   (taps report {out})", markup=False)
