"""Streams, many streams, first predictions, scaling and the service, measured on this machine.

    python benchmarks/bench.py stream --model ViT-B-16
    python benchmarks/bench.py pool --streams 1,8,64
    python benchmarks/bench.py start --model pocket --method view_ensemble+ --classes 100 --views 16
    python benchmarks/bench.py scaling --length 100000 --plot scaling.png
    python benchmarks/bench.py serve --model tiny

`taps bench step` measures the step itself, `benchmarks/views.py` the views of an image.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pool import measure_pool, measure_start
from scaling import BASE, draw, long_stream, sweep
from service import measure
from stream import measure_stream

from taps.bench.measure import class_names
from taps.cli.bench import Target, Views, table
from taps.cli.main import run
from taps.cli.options import new_app, parse_numbers, with_options
from taps.files import write_json
from taps.learner import Learner
from taps.prompts import maple

app = new_app(no_args_is_help=True, help="Measure speed and memory on this machine.")

Method = Annotated[str, typer.Option(help="taps, zero_shot+, view_ensemble+ ...")]
Classes = Annotated[int, typer.Option(min=2, help="Number of classes.")]


@dataclass(frozen=True)
class Small(Target):
    """A model that is quickly measured many times."""

    model: str = "tiny"


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
    device, dtype = target.place()
    load = target.loader()
    rows: list[dict[str, Any]] = []
    if length:
        for row in long_stream(load(dtype, device), length, every=max(1, length // 20)):
            rows.append(row)
            target.write(rows=rows)
    # What needs most memory comes last: a process keeps what it once had.
    for over, given in (("views", views), ("buffer", buffer), ("image_size", sizes), ("classes", classes)):
        wanted = parse_numbers(over, given) if given else ()
        rows += sweep(load, over, wanted, device=device, dtype=dtype, repeats=repeats)
        target.write(rows=rows)
    table(
        f"{target.model}: one number varied, the others as in {BASE}",
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
        draw(rows, plot)


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


if __name__ == "__main__":
    run(app)
