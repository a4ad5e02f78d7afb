"""`taps bench`: how fast the step is here, beside the published way of computing it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from taps.bench.options import Machine, Small, Target
from taps.cli.options import new_app, parse_numbers, with_options
from taps.cli.tables import show_table
from taps.errors import SettingsError

if TYPE_CHECKING:
    from taps.bench.step import StepTimings

app = new_app(no_args_is_help=True, help="Measure speed and memory on this machine.")

Views = Annotated[int, typer.Option("--views", min=1, help="Views of an image.")]
Method = Annotated[str, typer.Option(help="taps, zero_shot+, view_ensemble+ ...")]
Classes = Annotated[int, typer.Option(min=2, help="Number of classes.")]


@app.command()
@with_options
def step(
    target: Target,
    classes: Annotated[str, typer.Option(help="Numbers of classes.")] = "100,1000",
    buffer: Annotated[str, typer.Option(help="Numbers of labelled images.")] = "0,150,1500",
    reset: Annotated[
        str, typer.Option(help="Episodic (sample), continual (never), or both.")
    ] = "sample,never",
    views: Views = 64,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; each times either way once.")] = 10,
    reference: Annotated[bool, typer.Option(help="Whether to time the published way, too.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Two rounds: a first impression.")] = False,
) -> None:
    """The step per image: the published way and ours side by side, alternating."""
    from taps.bench.step import cases, measure_step

    device, dtype = target.place()
    load, rounds = target.loader(), min(repeats, 2) if quick else repeats
    rows, lines = [], []
    for case in cases(
        parse_numbers("--classes", classes), parse_numbers("--buffer", buffer), reset.split(","), views
    ):
        got = measure_step(load, case, device=device, dtype=dtype, repeats=rounds, reference=reference)
        rows.append(got.to_dict())
        lines.append(step_line(got))
        Console(stderr=True).print(" ".join(lines[-1]), highlight=False)
        target.write(steps=rows)
    times = ["published", "ours", "ratio", "+views", "+views", "ratio"]
    table(
        f"{target.model}: ms per image with {views} views, median ± half the quartiles' distance; peak GiB",
        ["reset", "classes", "labels", *times, "GiB", "GiB"],
        lines,
    )


def step_line(got: StepTimings) -> list[str]:
    """One line of the table: published and ours, views ready, then views included, then memory."""
    case = got.case
    line = [case.reset, f"{case.classes:,}", f"{case.buffer:,}"]
    for slow, fast, ratio in (
        (got.reference, got.ours, got.speedup),
        (got.reference_views, got.ours_views, got.speedup_views),
    ):
        line += ["–" if t is None else f"{t.median:.1f}±{(t.high - t.low) / 2:.1f}" for t in (slow, fast)]
        line.append("–" if ratio is None else f"{ratio:.1f}×")
    return line + ["–" if x is None else f"{x / 1024:.1f}" for x in (got.reference_mib, got.ours_mib)]


@app.command()
@with_options
def views(
    machine: Machine,
    images: Annotated[str, typer.Option(help="Heights and widths.")] = "375x500,1200x1600",
    sizes: Annotated[str, typer.Option(help="Sides of a view.")] = "64,224",
    views: Views = 64,
    repeats: Annotated[int, typer.Option(min=1)] = 15,
) -> None:
    """From a decoded image to its views: Pillow against tensors."""
    from taps.bench.stream import measure_views

    device = machine.find_device()
    rows = [
        measure_views(device, shape=parse_shape(each), size=size, views=views, repeats=repeats)
        for each in images.split(",")
        for size in parse_numbers("--sizes", sizes)
    ]
    table(
        "ms for all views of an image: median",
        ["image", "view", "Pillow", "tensors", "ratio"],
        [
            [
                "×".join(map(str, row["shape"])),
                str(row["size"]),
                *(f"{row['ms'][backend]['median']:.2f}" for backend in ("pillow", "tensor")),
                f"{row['ms']['pillow']['median'] / row['ms']['tensor']['median']:.1f}×",
            ]
            for row in rows
        ],
    )
    machine.write(views=rows)


def parse_shape(text: str) -> tuple[int, int]:
    """Height and width.

    >>> parse_shape("375x500")
    (375, 500)
    """
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text.strip())
    if found is None:
        raise SettingsError(f"--images {text!r} is no height and width such as 375x500.")
    return int(found[1]), int(found[2])


@app.command()
@with_options
def stream(
    target: Target,
    classes: Classes = 100,
    images: Annotated[int, typer.Option(min=1, help="Images that are timed.")] = 50,
    views: Views = 64,
    reset: Annotated[str, typer.Option(help="sample or never.")] = "sample",
    decoders: Annotated[int, typer.Option(min=0, help="Threads that decode ahead; 0 for none.")] = 2,
) -> None:
    """End to end: JPEG bytes in, predictions out, questions answered at once."""
    import torch

    from taps.bench.measure import class_names
    from taps.bench.stream import measure_stream
    from taps.learner import Learner
    from taps.prompts import maple

    clip = target.load()
    prompts = maple.initial(clip, torch.Generator().manual_seed(0))
    learner = Learner(clip, class_names(classes), "taps", prompts=prompts, views=views, reset=reset)
    row = measure_stream(learner, images, threads=decoders)
    ms = row["ms"]
    table(
        f"{target.model}, {classes} classes, {views} views, from JPEG bytes",
        ["images/s", "ms median", "quartiles", "asked", "peak MiB"],
        [[f"{row['images_per_second']:.2f}", f"{ms['median']:.1f}", f"{ms['low']:.1f}–{ms['high']:.1f}",
          str(row["asked"]), f"{row['peak_mib']:,.0f}"]],
    )  # fmt: skip
    target.write(stream=row)


@app.command()
@with_options
def pool(
    target: Target,
    method: Method = "taps",
    streams: Annotated[str, typer.Option(help="Numbers of streams.")] = "1,8,64",
    classes: Classes = 1000,
    views: Views = 64,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; each times every way once.")] = 10,
) -> None:
    """Many streams of one model: all together against one after the other."""
    from taps.bench.pool import measure_pool

    clip = target.load()
    rows: list[dict[str, Any]] = []
    for count in parse_numbers("--streams", streams):
        rows.append(measure_pool(clip, count, method=method, classes=classes, views=views, repeats=repeats))
        target.write(pool=rows)
    table(
        f"{target.model}, {method}, {classes} classes, {views} views: one image of each stream, ms median",
        ["streams", "alone", "together", "ratio", "images/s", "steps", "of the floor", "GiB beyond weights"],
        [
            [
                str(row["streams"]),
                *(f"{row[name]['median']:.1f}" for name in ("alone_ms", "together_ms")),
                f"{row['ratio']:.2f}×",
                f"{row['images_per_second']:.1f}",
                f"{row['step_ms']['median']:.1f}",
                f"{row['share_of_floor']:.0%}" if clip.device.type == "cuda" and "tflop" in row else "–",
                f"{row['mib_beyond_weights'] / 1024:.2f}",
            ]
            for row in rows
        ],
    )


@app.command()
@with_options
def start(target: Target, method: Method = "taps", classes: Classes = 1000, views: Views = 64) -> None:
    """From nothing to the first predictions of a stream, and of a second one of the same model."""
    from taps.bench.pool import measure_start

    found = measure_start(target.load, method=method, classes=classes, views=views)
    table(
        f"{target.model}, {method}, {classes} classes, {views} views: seconds",
        ["what", "seconds"],
        [[name.replace("_", " "), f"{value:.2f}"] for name, value in found.items()],
    )
    target.write(start=found)


@app.command()
@with_options
def scaling(
    target: Small,
    classes: Annotated[str, typer.Option(help="Numbers of classes; empty for none.")] = "10,100,1000,10000",
    views: Annotated[str, typer.Option(help="Numbers of views; empty for none.")] = "4,16,64,256",
    buffer: Annotated[
        str, typer.Option(help="Numbers of labelled images; empty for none.")
    ] = "0,100,10000,100000",
    sizes: Annotated[str, typer.Option(help="Sides of the model's images; empty for none.")] = "32,64,96",
    length: Annotated[int, typer.Option(help="Images of a stream whose memory is watched; 0 for none.")] = 0,
    repeats: Annotated[int, typer.Option(min=1)] = 5,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves into this file (png, svg, pdf).")] = None,
) -> None:
    """Cost against classes, views, labelled images, image size; memory along a stream."""
    from taps.bench import scaling as bench_scaling
    from taps.report.figure import pyplot

    if plot is not None:
        pyplot("no --plot")  # a missing library is said before anything is measured
    device, dtype = target.place()
    load = target.loader()
    rows: list[dict[str, Any]] = []
    if length:
        for row in bench_scaling.long_stream(load(dtype, device), length, every=max(1, length // 20)):
            rows.append(row)
            target.write(rows=rows)
    # What needs most memory comes last: a process keeps what it once had.
    for over, given in (("views", views), ("buffer", buffer), ("image_size", sizes), ("classes", classes)):
        wanted = parse_numbers(over, given) if given else ()
        rows += bench_scaling.sweep(load, over, wanted, device=device, dtype=dtype, repeats=repeats)
        target.write(rows=rows)
    table(
        f"{target.model}: one number varied, the others as in {bench_scaling.BASE}",
        ["varied", "value", "ms per image", "peak MiB"],
        [
            [
                row["over"],
                f"{row['value']:,}",
                f"{row['ms']['median']:.1f}" if "ms" in row else "–",
                f"{row['peak_mib']:,.0f}",
            ]
            for row in rows
        ],
    )
    target.write(rows=rows)
    if plot is not None:
        bench_scaling.plot(rows, plot)


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)  # in a file nothing is cut off
    show_table(columns, rows, title=title, console=console)


@app.command()
def serve(
    model: Annotated[
        str, typer.Option(help="tiny, pocket, or anything `load_clip` takes; on the CPU.")
    ] = "tiny",
    views: Views = 8,
    requests: Annotated[int, typer.Option(min=1, help="Requests for the overhead.")] = 500,
    seconds: Annotated[float, typer.Option(min=0.5, help="For the throughput, each way.")] = 20.0,
    streams: Annotated[int, typer.Option(min=1, help="At a time, for the throughput.")] = 8,
    idle: Annotated[int, typer.Option(min=1, help="Streams for the memory.")] = 100,
    file: Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")] = None,
) -> None:
    """The service: what it adds to a step, many streams against bare processes, memory of idle streams."""
    from taps.files import write_json
    from taps.serve.bench import measure

    found = measure(model, views=views, requests=requests, seconds=seconds, streams=streams, idle=idle)
    spent = (found.learners_cpu_ms, found.http_cpu_ms, found.clients_cpu_ms)
    figures = {
        "the learner's own step (median)": f"{found.step_ms:.1f} ms",
        "above it, p50": f"{found.overhead_p50_ms:.1f} ms",
        "above it, p99": f"{found.overhead_p99_ms:.1f} ms",
        "of it the disk: a bare durable commit, p50, p99": f"{found.commit_p50_ms:.1f} ms, "
        f"{found.commit_p99_ms:.1f} ms",
        "bare learner processes, one a core": f"{found.bare_per_second:.1f} images/s",
        f"served, {streams} streams": f"{found.served_per_second:.1f} images/s",
        "served / bare": f"{found.throughput:.0%}",
        "CPU an image: learners, HTTP, clients": " + ".join(f"{each:.1f}" for each in spent) + " ms",
        "memory, one stream": f"{found.memory_one_mb:.0f} MB",
        f"memory, {idle} idle streams": f"{found.memory_hundred_mb:.0f} MB ({found.memory:.2f}×)",
    }
    lines = [[what, figure] for what, figure in figures.items()]
    table(f"taps serve, {model}, {views} views, durable commits", ["what", "figure"], lines)
    if file is not None:
        write_json(file, found.to_dict())
