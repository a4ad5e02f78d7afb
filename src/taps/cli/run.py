"""`taps run FOLDER`: stream a folder of images through a learner."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taps.cli.options import new_app, with_options
from taps.cli.terminal import Paused, StreamProgress, show_json
from taps.streams.options import RunOptions, SortOptions

if TYPE_CHECKING:
    from rich.console import Console

    from taps.streams.loop import Session
    from taps.streams.sequence import Stream

app = new_app()
RUNS = Path("runs")
PREFETCHED = 2  # images decoded beforehand


@app.command()
@with_options
def run(
    context: typer.Context,
    options: RunOptions,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; by default a new one under runs/.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(help="Continue a stopped run: the one in --out, or the last one under runs/."),
    ] = False,
    sort: SortOptions = SortOptions(),
    repredict: Annotated[
        bool,
        typer.Option(
            help="When done, predict every image again by all that was learned. A method with a head needs "
            "about a millisecond an image, others as long as for the run."
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Stream images one at a time: predict, ask an annotator now and then, learn.

    Writes predictions.csv, events.jsonl, summary.json and report.html. Ctrl-C saves. --resume
    continues a stopped run and needs no other options: they are stored with the run.
    """
    from taps.data.load import check_there
    from taps.streams.annotators import find_annotator

    if not resume:  # before the slow imports
        check_there(options.folder)
        find_annotator(options.annotator)
    from rich.console import Console

    from taps.disk import check_free
    from taps.files import write_json
    from taps.streams.record import is_run
    from taps.streams.run import SUMMARY, open_run, summarise
    from taps.streams.sorting import check_sorting
    from taps.study.report.run_page import write_page

    console = Console(stderr=as_json)
    options, out, resume = choose_run(context, options, out, resume=resume)
    check_sorting(options.folder, sort)
    check_free(out, is_run)
    with open_run(options, out, resume=resume) as session:
        console.print(f"{'Going on with' if resume else 'Record:'} {out}", markup=False, soft_wrap=True)
        if session.learner.clip.fingerprint.startswith("random"):
            console.print("This model has random weights: it shows how things work, not what they can do.")
        if session.stream.dataset.left_out:
            console.print(f"left out: {session.stream.dataset.left_out}", markup=False, soft_wrap=True)
        stream_through(console, session, repredict=repredict)
        summary = summarise(session.learner, session.running, out)
        write_json(out / SUMMARY, summary)
        sort_images(console, session, sort)
        write_page(out, session.stream, summary)  # last: results do not wait for a picture of them
    if as_json:
        show_json(summary, indent=None)
    else:
        show(console, summary, out)


def sort_images(console: Console, session: Session[Stream], sort: SortOptions) -> None:
    """Sort the images of a run that is over; those that were deleted or replaced meanwhile are left out."""
    from taps.streams.run import other_pictures
    from taps.streams.sorting import sort_run

    if sort.sort_into is not None:
        folder, dataset = session.record.folder, session.stream.dataset
        other, gone = other_pictures(folder, session.stream)
        for paths, what in ((other, "are other pictures now"), (gone, "are gone")):
            if paths:
                console.print(f"Not sorted, because their files {what}: {len(paths):,}.")
        sort_run(folder, dataset, sort, other | gone)


def choose_run(
    context: typer.Context, options: RunOptions, out: Path | None, *, resume: bool
) -> tuple[RunOptions, Path, bool]:
    """What to run and where; and whether there is a run to continue."""
    from taps.streams.record import SPEC
    from taps.streams.run import last_run, resumed_options

    if not resume:
        images = Path(options.folder or "run").resolve().stem
        name = f"{images}-{options.method}-{time.strftime('%Y%m%d-%H%M%S')}"
        return options, out or RUNS / name, False
    where = out or last_run(RUNS, options.folder)
    if options.folder is not None and not (where / SPEC).is_file():
        return options, where, False  # stopped before anything was saved, or never begun
    sources = {item.name: context.get_parameter_source(item.name) for item in fields(RunOptions)}
    typed = {name for name, source in sources.items() if source is not None and source.name != "DEFAULT"}
    return resumed_options(where, options, typed), where, True


def stream_through(console: Console, session: Session[Stream], *, repredict: bool = True) -> None:
    """Follow the stream under a progress bar; Ctrl-C says what is saved and how to continue."""
    from taps.streams.annotators import is_repeatable
    from taps.streams.final import forget_final, repredict_all
    from taps.streams.loop import follow

    total, out = len(session.stream), session.record.folder
    try:
        with StreamProgress(console, total, session.running.position) as progress:
            if session.annotator is not None and not is_repeatable(session.annotator):
                session.annotator = Paused(session.annotator, progress.bar)
            follow(session, progress=progress.update, prefetched=PREFETCHED)
            if repredict:
                repredict_all(session, progress=progress.again)
            else:
                forget_final(session)
    except KeyboardInterrupt:
        console.print(
            f"Stopped. {session.record.position:,} of {total:,} images and every answer are saved in {out}.\n"
            f"Go on with: taps run --resume --out {out}",
            markup=False,
            soft_wrap=True,
        )
        raise


def show(console: Console, summary: dict[str, Any], out: Path) -> None:
    from rich.table import Column, Table

    from taps.study.report.run_page import final_cell

    cells = {
        "images": str(summary["n"]),
        "broken": str(summary["broken"]),
        summary["accuracy_of"]: "unknown" if summary["top1"] is None else f"{summary['top1']:.1%}",
        **final_cell(summary),
        "asked": str(summary["asked"]),
        "rate": f"{summary['rate']:.1%}",
        "ms/image (p50)": f"{summary['ms_p50']:.1f}",
        "ms/image (p95)": f"{summary['ms_p95']:.1f}",
    }
    title = f"{summary['method']} on {summary['model']}, {summary['classes']} classes"
    table = Table(*(Column(name, justify="right") for name in cells), title=title)
    table.add_row(*cells.values())
    console.print(table)
    if summary["delivered"] is not None:
        console.print(
            f"Delivered: {summary['delivered']:.1%} of the labels are right, with the answered ones."
        )
    learner = summary["learner"]
    if learner.get("questions", {}).get("yes_no"):
        which, yes_no = learner["questions"]["class"], learner["questions"]["yes_no"]
        console.print(
            f"Asked which class: {which}; yes or no: {yes_no}; about {learner['seconds']:.0f} seconds."
        )
    if learner.get("accuracy"):
        console.print(f"All predictions, estimated from the answers: {learner['accuracy']['said']}.")
    if learner.get("forecast"):
        console.print(f"{learner['forecast']['said']}.", highlight=False)
    rate = summary["settings"].get("rate")
    if rate and not summary["asked"]:
        console.print(
            f"No question was due: {summary['n']} images, --rate {rate:g}. A higher rate asks more."
        )
    for note in learner.get("notes", []):
        console.print(note, markup=False)
    console.print(f"Record: {out}; look at {out / 'report.html'}", markup=False, soft_wrap=True)
