"""`taps demo`: see it work, offline, in minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taps.cli.options import new_app, parse_list

if TYPE_CHECKING:
    from taps.model.clip import Clip

app = new_app()

# Fewer views than the paper's 64, of which a larger share is kept: two cores are done within three minutes.
# Of the 400 images some are left for trying out what the last answers changed.
VIEWS, FRACTION, IMAGES = 12, 0.25, 360
RATE, REPORT = 0.1, "report.html"


@app.command()
def demo(
    model: Annotated[
        str, typer.Option(help="pocket comes with the package; any other model works too.")
    ] = "pocket",
    method: Annotated[str, typer.Option(help="Which methods to compare.")] = "view_ensemble,view_ensemble+",
    limit: Annotated[
        int, typer.Option(min=1, help="Stop after this many images of 400; with --serve, of 360.")
    ] = IMAGES,
    views: Annotated[int, typer.Option(min=1, help="Views of each image; the paper has 64.")] = VIEWS,
    rate: Annotated[float, typer.Option(help="Share of images to ask about.")] = RATE,
    seed: Annotated[int, typer.Option(help="Order of the stream and all random choices.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("taps-demo"),
    serve: Annotated[
        bool,
        typer.Option("--serve", help="You are the annotator: label bundled photos in the browser instead."),
    ] = False,
) -> None:
    """Stream bundled images through a method that asks and one that does not, and write a report to look at.

    Needs no network. The folder's own labels play the annotator; each is looked at only after its prediction.
    """
    from taps.cli.label import need_page
    from taps.disk import check_free, claim
    from taps.model.clip import load_clip

    if serve:
        need_page()
        check_free(out / "store")
    else:
        claim(out)
    clip = load_clip(model)
    if serve:
        label_page(clip, out / "store", limit=limit, views=views, rate=rate, seed=seed)
    else:
        compare(clip, parse_list(method), out, limit=limit, views=views, rate=rate, seed=seed)


def compare(
    clip: Clip, methods: tuple[str, ...], out: Path, *, limit: int, views: int, rate: float, seed: int
) -> None:
    """Run the methods over the bundled stream one by one; print a table, write a report."""
    from rich.console import Console
    from rich.table import Column, Table

    from taps.cli.terminal import StreamProgress
    from taps.data import sign_digits
    from taps.files import write_text
    from taps.learner import Learner
    from taps.methods.registry import with_length
    from taps.streams.sequence import make_stream
    from taps.study.evaluate.plan import settings_for
    from taps.study.report.demo import page, play, what_labels_bought

    console, dataset, model = Console(), sign_digits(), clip.config.name
    warning = ""
    if clip.fingerprint.startswith("random"):
        warning = "This model has random weights: the page shows how things work, not what they can do."
        console.print(warning)
    stream = make_stream(dataset, seed, limit=limit)
    console.print(
        f"{len(stream)} images, {len(dataset.classes)} classes, model {model}, {views} views of each image."
    )
    # The paper's rule would ask about nearly all of the first 30 images: the budget is held.
    values = {"views": views, "fraction": FRACTION, "rate": rate, "budget": "hard"}
    learners = {  # all made first: a mistake in the last one's settings should not cost the others' time
        name: Learner(clip, dataset.classes, name, seed=seed, **settings_for(name, given))
        for name, given in ((name, with_length(name, values, len(stream))) for name in methods)
    }
    traces = []
    for name, learner in learners.items():
        with StreamProgress(console, len(stream), title=f"{name:<10}") as bar:
            traces.append(play(learner, stream, out / name, bar.update))
    write_text(out / REPORT, page(traces, stream, model=model, views=views, warning=warning))
    numbers = (Column(name, justify="right") for name in ("accuracy", "questions", "ms/image"))
    table = Table("method", *numbers, title="Measured just now")
    for trace in traces:
        table.add_row(trace.name, f"{trace.accuracy:.1%}", str(len(trace.asked)), f"{trace.ms:.0f}")
    console.print(table)
    quiet, asking = traces[0], traces[-1]
    if asking.asked and not quiet.asked:
        console.print(f"{what_labels_bought(quiet, asking)} {asking.changed}", markup=False)
    console.print(f"Report: {(out / REPORT).resolve()}", soft_wrap=True)


def label_page(clip: Clip, place: Path, *, limit: int, views: int, rate: float, seed: int) -> None:
    """The labelling page on the bundled stream; images have numbers for names, not classes."""
    from taps.cli.label import Ending, asking_settings, go
    from taps.data import demo_dataset
    from taps.default import METHOD
    from taps.serve.folder import Folder
    from taps.serve.records import StreamConfig
    from taps.serve.service import Service
    from taps.streams.options import SortOptions
    from taps.streams.sequence import make_stream

    dataset = demo_dataset()
    order = make_stream(dataset, seed).order[:limit]
    questions = max(1, round(rate * len(order)))
    settings = asking_settings(METHOD, views, questions, len(order)) | {"fraction": FRACTION}

    def begin(service: Service) -> Folder:
        made = Folder(service, "demo", dataset, order, lambda t: f"image {t + 1}")
        beginning = StreamConfig("demo", list(dataset.classes), METHOD, settings, seed, None, 0.0)
        made.begin(beginning, given=False, questions=questions)
        return made

    go(place, clip, begin, Ending(place, dataset, SortOptions()))
