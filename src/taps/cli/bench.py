"""`taps bench`: how fast the step is here, beside the published way of computing it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import torch

    from taps.bench.step import StepTimings
    from taps.clip import Clip

app = typer.Typer(no_args_is_help=True, help="Measure speed and memory on this machine.")

MODEL = typer.Option("ViT-B-16", help="Architecture, or anything `load_clip` takes.")
PRETRAINED = typer.Option("random", help="Weights; speed does not depend on them.")
DEVICE = typer.Option(None, "--device", help="cpu or cuda; default: cuda device there is one.")
DTYPE = typer.Option(
    None, "--dtype", help="Of our frozen weights: fp32, bf16, fp16; default: bf16 on cuda, else fp32."
)
THREADS = typer.Option(None, min=1, help="Threads of torch on a CPU.")
JSON = typer.Option(None, "--json", help="Also write the figures to this file.")


@app.command()
def step(
    model: str = MODEL,
    pretrained: str = PRETRAINED,
    classes: str = typer.Option("100,1000", help="Numbers of classes."),
    buffer: str = typer.Option("0,150,1500", help="Numbers of labelled images."),
    reset: str = typer.Option("sample,never", help="Episodic (sample), continual (never), or both."),
    views: int = typer.Option(64, min=1, help="Views of an image."),
    device_name: str | None = DEVICE,
    dtype_name: str | None = DTYPE,
    repeats: int = typer.Option(10, min=1, help="Rounds; each times either way once."),
    reference: bool = typer.Option(True, help="Whether to time the published way, too."),
    quick: bool = typer.Option(False, "--quick", help="Two rounds: a first impression."),
    threads: int | None = THREADS,
    file: Path | None = JSON,
) -> None:
    """The step per image: the published way and ours side by side, alternating."""
    from rich.console import Console

    from taps.bench.step import cases, measure_step

    device, dtype = resolve_device(device_name, dtype_name, threads)
    load = model_loader(model, pretrained)
    rows, lines = [], []
    for case in cases(numbers(classes), numbers(buffer), reset.split(","), views):
        rounds = min(repeats, 2) if quick else repeats
        got = measure_step(load, case, device=device, dtype=dtype, repeats=rounds, reference=reference)
        rows.append(got.to_dict())
        lines.append(step_line(got))
        Console(stderr=True).print(" ".join(lines[-1]), highlight=False)
        write(file, device, {"model": model, "dtype": str(dtype), "steps": rows})
    table(
        f"{model}: ms per image with {views} views, median ± half the quartiles' distance; peak GiB",
        [
            "reset",
            "classes",
            "labels",
            "published",
            "ours",
            "ratio",
            "+views",
            "+views",
            "ratio",
            "GiB",
            "GiB",
        ],
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
def views(
    images: str = typer.Option("375x500,1200x1600", help="Heights and widths."),
    sizes: str = typer.Option("64,224", help="Sides of a view."),
    count: int = typer.Option(64, "--views", min=1, help="Views of an image."),
    device_name: str | None = DEVICE,
    repeats: int = typer.Option(15, min=1),
    threads: int | None = THREADS,
    file: Path | None = JSON,
) -> None:
    """From a decoded image to its views: Pillow against tensors."""
    from taps.bench.stream import measure_views

    device, _ = resolve_device(device_name, None, threads)
    shapes = [[int(side) for side in each.split("x")] for each in images.split(",")]
    rows = [
        measure_views(device, shape=(height, width), size=size, views=count, repeats=repeats)
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
    write(file, device, {"views": rows})


@app.command()
def stream(
    model: str = MODEL,
    pretrained: str = PRETRAINED,
    classes: int = typer.Option(100, min=2, help="Number of classes."),
    images: int = typer.Option(50, min=1, help="Images that are timed."),
    count: int = typer.Option(64, "--views", min=1, help="Views of an image."),
    reset: str = typer.Option("sample", help="sample or never."),
    decoders: int = typer.Option(2, min=0, help="Threads that decode ahead; 0 for none."),
    device_name: str | None = DEVICE,
    dtype_name: str | None = DTYPE,
    threads: int | None = THREADS,
    file: Path | None = JSON,
) -> None:
    """End to end: JPEG bytes in, predictions out, questions answered at once."""
    import torch

    from taps.bench.measure import class_names
    from taps.bench.stream import measure_stream
    from taps.learner import Learner
    from taps.prompts import maple

    device, dtype = resolve_device(device_name, dtype_name, threads)
    clip = model_loader(model, pretrained)(dtype, device)
    prompts = maple.initial(clip, torch.Generator().manual_seed(0))
    learner = Learner(clip, class_names(classes), "taps", prompts=prompts, views=count, reset=reset)
    row = measure_stream(learner, images, threads=decoders)
    ms = row["ms"]
    table(
        f"{model}, {classes} classes, {count} views, from JPEG bytes",
        ["images/s", "ms median", "quartiles", "asked", "peak MiB"],
        [[f"{row['images_per_second']:.2f}", f"{ms['median']:.1f}", f"{ms['low']:.1f}–{ms['high']:.1f}",
          str(row["asked"]), f"{row['peak_mib']:,.0f}"]],
    )  # fmt: skip
    write(file, device, {"model": model, "dtype": str(dtype), "stream": row})


@app.command()
def pool(
    model: str = MODEL,
    pretrained: str = PRETRAINED,
    method: str = typer.Option("taps", help="taps, zero_shot+, view_ensemble+ ..."),
    streams: str = typer.Option("1,8,64", help="Numbers of streams."),
    classes: int = typer.Option(1000, min=2, help="Number of classes."),
    views: int = typer.Option(64, min=1, help="Views of an image."),
    device_name: str | None = DEVICE,
    dtype_name: str | None = DTYPE,
    repeats: int = typer.Option(10, min=1, help="Rounds; each times every way once."),
    threads: int | None = THREADS,
    file: Path | None = JSON,
) -> None:
    """Many streams of one model: all together against one after the other."""
    from taps.bench.pool import measure_pool

    device, dtype = resolve_device(device_name, dtype_name, threads)
    clip = model_loader(model, pretrained)(dtype, device)
    rows: list[dict[str, Any]] = []
    for count in numbers(streams):
        rows.append(measure_pool(clip, count, method=method, classes=classes, views=views, repeats=repeats))
        write(file, device, {"model": model, "dtype": str(dtype), "pool": rows})
    table(
        f"{model}, {method}, {classes} classes, {views} views: one image of each stream, ms median",
        ["streams", "alone", "together", "ratio", "images/s", "steps", "of the floor", "GiB beyond weights"],
        [
            [
                str(row["streams"]),
                *(f"{row[name]['median']:.1f}" for name in ("alone_ms", "together_ms")),
                f"{row['ratio']:.2f}×",
                f"{row['images_per_second']:.1f}",
                f"{row['step_ms']['median']:.1f}",
                f"{row['share_of_floor']:.0%}" if device.type == "cuda" and "tflop" in row else "–",
                f"{row['mib_beyond_weights'] / 1024:.2f}",
            ]
            for row in rows
        ],
    )


@app.command()
def start(
    model: str = MODEL,
    pretrained: str = PRETRAINED,
    method: str = typer.Option("taps", help="taps, zero_shot+, view_ensemble+ ..."),
    classes: int = typer.Option(1000, min=2, help="Number of classes."),
    views: int = typer.Option(64, min=1, help="Views of an image."),
    device_name: str | None = DEVICE,
    dtype_name: str | None = DTYPE,
    threads: int | None = THREADS,
    file: Path | None = JSON,
) -> None:
    """From nothing to the first predictions of a stream, and of a second one of the same model."""
    from taps.bench.pool import measure_start

    device, dtype = resolve_device(device_name, dtype_name, threads)

    def load() -> Clip:
        return model_loader(model, pretrained)(dtype, device)

    found = measure_start(load, method=method, classes=classes, views=views)
    table(
        f"{model}, {method}, {classes} classes, {views} views: seconds",
        ["what", "seconds"],
        [[name.replace("_", " "), f"{value:.2f}"] for name, value in found.items()],
    )
    write(file, device, {"model": model, "dtype": str(dtype), "start": found})


@app.command()
def scaling(
    model: str = typer.Option("tiny", help="Architecture, or anything `load_clip` takes."),
    pretrained: str = PRETRAINED,
    classes: str = typer.Option("10,100,1000,10000", help="Numbers of classes; empty for none."),
    views: str = typer.Option("4,16,64,256", help="Numbers of views; empty for none."),
    buffer: str = typer.Option("0,100,10000,100000", help="Numbers of labelled images; empty for none."),
    sizes: str = typer.Option("32,64,96", help="Sides of the model's images; empty for none."),
    length: int = typer.Option(0, help="Images of a stream whose memory is watched; 0 for none."),
    device_name: str | None = DEVICE,
    dtype_name: str | None = DTYPE,
    repeats: int = typer.Option(5, min=1),
    threads: int | None = THREADS,
    file: Path | None = JSON,
    plot: Path | None = typer.Option(None, help="Draw the curves into this file (png, svg, pdf)."),
) -> None:
    """Cost against classes, views, labelled images, image size; memory along a stream."""
    from taps.bench import scaling as bench_scaling

    device, dtype = resolve_device(device_name, dtype_name, threads)
    load = model_loader(model, pretrained)
    rows: list[dict[str, Any]] = []
    if length:
        for row in bench_scaling.long_stream(load(dtype, device), length, every=max(1, length // 20)):
            rows.append(row)
            write(file, device, {"model": model, "dtype": str(dtype), "rows": rows})
    # What needs most memory comes last: a process keeps what it once had.
    for over, given in (("views", views), ("buffer", buffer), ("image_size", sizes), ("classes", classes)):
        wanted = numbers(given)
        rows += bench_scaling.sweep(load, over, wanted, device=device, dtype=dtype, repeats=repeats)
        write(file, device, {"model": model, "dtype": str(dtype), "rows": rows})
    table(
        f"{model}: one number varied, the others as in {bench_scaling.BASE}",
        ["varied", "value", "ms per image", "peak MiB"],
        [[r["over"], f"{r['value']:,}", milliseconds(r), f"{r['peak_mib']:,.0f}"] for r in rows],
    )
    write(file, device, {"model": model, "dtype": str(dtype), "rows": rows})
    if plot is not None:
        bench_scaling.plot(rows, plot)


def milliseconds(row: dict[str, Any]) -> str:
    return f"{row['ms']['median']:.1f}" if "ms" in row else "–"


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


def resolve_device(
    device_name: str | None, dtype_name: str | None, threads: int | None
) -> tuple[torch.device, torch.dtype]:
    """The device to measure on and the dtype of our frozen weights, from what the options say."""
    import torch

    from taps.clip.place import find_device, find_dtype

    if threads:
        torch.set_num_threads(threads)
    device = find_device(device_name)
    return device, find_dtype(dtype_name or ("bf16" if device.type == "cuda" else "fp32"))


def model_loader(model: str, pretrained: str) -> Callable[[torch.dtype, torch.device], Clip]:
    """Loads once, then hands out copies."""
    import copy

    from taps.clip.load import load_clip

    built_in = model in ("pocket",) or Path(model).exists() or "/" in model
    master = load_clip(model, pretrained=None if built_in else pretrained)
    return lambda dtype, device: copy.deepcopy(master).to(device=device, dtype=dtype)


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    made = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        made.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 140).print(made)  # in a file nothing is cut off


def write(file: Path | None, device: torch.device, values: dict[str, Any]) -> None:
    """Figures are written as they come: an interrupted run leaves what it measured."""
    from taps.bench.measure import machine
    from taps.files import write_json

    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"machine": machine(device), **values})


@app.command()
def serve(
    model: str = typer.Option("tiny", help="tiny, pocket, or anything `load_clip` takes; on the CPU."),
    views: int = typer.Option(8, min=1, help="Views of an image."),
    requests: int = typer.Option(500, min=1, help="Requests for the overhead."),
    seconds: float = typer.Option(20.0, min=0.5, help="For the throughput, each way."),
    streams: int = typer.Option(8, min=1, help="At a time, for the throughput."),
    idle: int = typer.Option(100, min=1, help="Streams for the memory."),
    file: Path | None = JSON,
) -> None:
    """The service: what it adds to a step, many streams against bare processes, memory of idle streams."""
    from rich.console import Console
    from rich.table import Table

    from taps.files import write_json
    from taps.serve.bench import measure

    found = measure(model, views=views, requests=requests, seconds=seconds, streams=streams, idle=idle)
    table = Table("what", "figure", title=f"taps serve, {model}, {views} views, durable commits")
    table.add_row("the learner's own step (median)", f"{found.step_ms:.1f} ms")
    table.add_row("above it, p50", f"{found.overhead_p50_ms:.1f} ms")
    table.add_row("above it, p99", f"{found.overhead_p99_ms:.1f} ms")
    commit = f"{found.commit_p50_ms:.1f} ms, {found.commit_p99_ms:.1f} ms"
    table.add_row("of it the disk: a bare durable commit, p50, p99", commit)
    table.add_row("bare learner processes, one a core", f"{found.bare_per_second:.1f} images/s")
    table.add_row(f"served, {streams} streams", f"{found.served_per_second:.1f} images/s")
    table.add_row("served / bare", f"{found.throughput:.0%}")
    spent = (found.learners_cpu_ms, found.http_cpu_ms, found.clients_cpu_ms)
    table.add_row(
        "CPU an image: learners, HTTP, clients", " + ".join(f"{each:.1f}" for each in spent) + " ms"
    )
    table.add_row("memory, one stream", f"{found.memory_one_mb:.0f} MB")
    table.add_row(f"memory, {idle} idle streams", f"{found.memory_hundred_mb:.0f} MB ({found.memory:.2f}×)")
    Console().print(table)
    if file is not None:
        write_json(file, found.to_dict())
