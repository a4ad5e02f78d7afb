"""`taps run FOLDER`: stream a folder of images through a learner."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def run(
    folder: Annotated[
        str, typer.Argument(help="Folder (or zip) of images, with or without one folder a class.")
    ],
    classes: Annotated[
        str | None,
        typer.Option(help="Names separated by commas, or a file with one a line; else the folders' names."),
    ] = None,
    model: Annotated[str, typer.Option(help="pocket, ViT-B-16, a checkpoint's path, …")] = "pocket",
    pretrained: Annotated[
        str | None, typer.Option(help="Weights for an architecture: a file, openai, laion2b.")
    ] = None,
    method: Annotated[str, typer.Option(help="Which system; `taps methods` lists them.")] = "taps",
    prompts: Annotated[
        str | None, typer.Option(help="hand, coop, maple, or a directory of trained prompts.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Source statistics made by `taps stats`.")] = None,
    oracle: Annotated[
        str, typer.Option(help="Who answers: folder (its own labels), console (you), none.")
    ] = "folder",
    rate: Annotated[float | None, typer.Option(help="Share of images to ask about.")] = None,
    buffer: Annotated[int | None, typer.Option(help="How many labelled images are kept.")] = None,
    seed: Annotated[int, typer.Option(help="Every random choice follows from it.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Stop after so many images.")] = None,
    shuffle: Annotated[
        bool, typer.Option(help="Shuffle the stream by the seed, or take it in order of names.")
    ] = True,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting of the method: name=value. May be repeated."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the record goes; a new folder under runs/ unless given.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with a run that was stopped.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Stream images one at a time: predict, ask an expert now and then, learn.

    Writes predictions.csv, events.jsonl and summary.json. A run that was stopped goes on with --resume.
    """
    from rich.console import Console

    from taps.cli.common import dataset_for, given_settings, make_oracle, stream_progress
    from taps.clip import load_clip
    from taps.data.streams import stream_order
    from taps.learner import Learner
    from taps.stream import run as runner

    console = Console(stderr=as_json)
    dataset, names = dataset_for(folder, classes, oracle)
    settings = given_settings(
        method, {"rate": rate, "buffer": buffer, "prompts": prompts, "source": source}, set_ or []
    )
    where = out or Path("runs") / f"{Path(folder).stem}-{method}-{time.strftime('%Y%m%d-%H%M%S')}"
    indices = stream_order(len(dataset), seed).tolist() if shuffle else list(range(len(dataset)))
    indices = indices[:limit]

    clip = load_clip(model, pretrained=pretrained, device=device)
    if clip.fingerprint.startswith("random"):
        console.print("This model has random weights: it shows how things work, not what they can do.")
    learner, tally, record = runner.open_run(
        where, lambda: Learner(clip, names, method, seed=seed, **settings), resume=resume
    )
    labels = {dataset.samples[index].key: dataset.samples[index].label for index in indices}
    try:
        with stream_progress(console, len(indices), tally.position) as progress:
            expert = make_oracle(oracle, learner.classes, labels, progress)
            seconds = runner.run_stream(
                learner, dataset, indices, expert, record, tally, progress=progress.update
            )
    finally:
        record.close()
    summary = runner.summarise(learner, tally, where, seconds)
    (where / runner.SUMMARY).write_text(json.dumps(summary, indent=1) + "\n")
    if as_json:
        print(json.dumps(summary))
    else:
        _show(console, summary, where)


def _show(console: Any, summary: dict[str, Any], out: Path) -> None:
    from rich.table import Table

    table = Table(title=f"{summary['method']} on {summary['model']}, {summary['classes']} classes")
    for column in ("images", "broken", "accuracy", "asked", "rate", "ms/image (p50)", "ms/image (p95)"):
        table.add_column(column, justify="right")
    accuracy = "unknown" if summary["top1"] is None else f"{summary['top1']:.1%}"
    table.add_row(
        str(summary["n"]),
        str(summary["broken"]),
        accuracy,
        str(summary["asked"]),
        f"{summary['rate']:.1%}",
        f"{summary['ms_p50']:.1f}",
        f"{summary['ms_p95']:.1f}",
    )
    console.print(table)
    for note in summary["learner"].get("notes", []):
        console.print(note, markup=False)
    console.print(f"Record: {out}")
