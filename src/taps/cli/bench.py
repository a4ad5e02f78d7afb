"""`taps bench`: how fast the step is here, beside the published way of computing it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taps.cli.options import new_app, with_options

if TYPE_CHECKING:
    import torch

    from taps.bench.step import StepTimings
    from taps.clip import Clip

app = new_app(no_args_is_help=True, help="Measure speed and memory on this machine.")

Views = Annotated[int, typer.Option("--views", min=1, help="Views of an image.")]
Method = Annotated[str, typer.Option(help="taps, zero_shot+, view_ensemble+ ...")]
Classes = Annotated[int, typer.Option(min=2, help="Number of classes.")]


@dataclass(frozen=True)
class Machine:
    """Where it is measured.

    Attributes:
        device: cpu or cuda; default: cuda where there is one.
        threads: Threads of torch on a CPU.
        file: Also write the figures to this file.
    """

    device: str | None = None
    threads: int | None = field(default=None, metadata={"min": 1})
    file: Path | None = field(default=None, metadata={"flags": ("--json",)})

    def find_device(self) -> torch.device:
        """The device; the number of threads is set."""
        import torch

        from taps.clip.place import find_device

        if self.threads:
            torch.set_num_threads(self.threads)
        return find_device(self.device)

    def write(self, **values: Any) -> None:
        """Figures are written as they come: an interrupted run leaves what it measured."""
        from taps.bench.measure import machine
        from taps.files import write_json

        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.file, {"machine": machine(self.find_device()), **values})


@dataclass(frozen=True)
class Target(Machine):
    """Which model is measured, and where.

    Attributes:
        model: Architecture, or anything `load_clip` takes.
        pretrained: Weights; speed does not depend on them.
        dtype: Of our frozen weights: fp32, bf16, fp16; default: bf16 on cuda, else fp32.
    """

    model: str = "ViT-B-16"
    pretrained: str = "random"
    dtype: str | None = None

    def place(self) -> tuple[torch.device, torch.dtype]:
        """The device to measure on and the dtype of our frozen weights."""
        from taps.clip.place import find_dtype

        device = self.find_device()
        return device, find_dtype(self.dtype or ("bf16" if device.type == "cuda" else "fp32"))

    def loader(self) -> Callable[[torch.dtype, torch.device], Clip]:
        """Loads once, then hands out copies."""
        import copy

        from taps.clip.load import load_clip

        built_in = self.model in ("pocket",) or Path(self.model).exists() or "/" in self.model
        master = load_clip(self.model, pretrained=None if built_in else self.pretrained)
        return lambda dtype, device: copy.deepcopy(master).to(device=device, dtype=dtype)

    def load(self) -> Clip:
        device, dtype = self.place()
        return self.loader()(dtype, device)

    def write(self, **values: Any) -> None:
        super().write(model=self.model, dtype=str(self.place()[1]), **values)


@dataclass(frozen=True)
class Small(Target):
    """A model that is quickly measured many times."""

    model: str = "tiny"


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
    from rich.console import Console

    from taps.bench.step import cases, measure_step

    device, dtype = target.place()
    load, rounds = target.loader(), min(repeats, 2) if quick else repeats
    rows, lines = [], []
    for case in cases(numbers(classes), numbers(buffer), reset.split(","), views):
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
    shapes = [[int(side) for side in each.split("x")] for each in images.split(",")]
    rows = [
        measure_views(device, shape=(height, width), size=size, views=views, repeats=repeats)
        for height, width in shapes
        for size in numbers(sizes)
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
    for count in numbers(streams):
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
        wanted = numbers(given)
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


def numbers(text: str) -> list[int]:
    """
    >>> numbers("100,1000")
    [100, 1000]
    """
    from taps.errors import SettingsError

    try:
        return [int(each) for each in text.split(",") if each.strip()]
    except ValueError:
        raise SettingsError(f"{text!r} is not a list of whole numbers such as 100,1000.") from None


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    made = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        made.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 140).print(made)  # in a file nothing is cut off


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
