"""`taps bench`: speed and memory of the adaptation step here, beside the published computation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from taps.cli.options import new_app, parse_numbers, with_options
from taps.cli.terminal import show_table
from taps.files import check_json

if TYPE_CHECKING:
    import torch

    from taps.model.clip import Clip
    from taps.study.bench.step import StepTimings

app = new_app(no_args_is_help=True)

Views = Annotated[int, typer.Option("--views", min=1, help="Views of an image.")]


@app.callback()
def bench() -> None:
    """Measure speed and memory on this machine."""


@dataclass(frozen=True)
class Target:
    """Which model is measured, and where.

    Attributes:
        model: Architecture, or anything `load_clip` takes.
        pretrained: Weights; speed does not depend on them.
        dtype: Of our frozen weights: fp32, bf16, fp16; default: bf16 on cuda, else fp32.
        device: cpu or cuda; default: cuda where there is one.
        file: Also write the figures to this file.
    """

    model: str = "ViT-B-16"
    pretrained: str = "random"
    dtype: str | None = None
    device: str | None = None
    file: Path | None = field(default=None, metadata={"flags": ("--json",)})

    def __post_init__(self) -> None:
        if self.file is not None:
            check_json(self.file)

    def place(self) -> tuple[torch.device, torch.dtype]:
        """The device to measure on and the dtype of our frozen weights."""
        from taps.model.clip.load import find_device, find_dtype

        device = find_device(self.device)
        return device, find_dtype(self.dtype or ("bf16" if device.type == "cuda" else "fp32"))

    def loader(self) -> Callable[[torch.dtype, torch.device], Clip]:
        """Loads once, then hands out copies."""
        import copy

        from taps.model.clip.load import load_clip

        built_in = self.model in ("pocket",) or Path(self.model).exists() or "/" in self.model
        master = load_clip(self.model, pretrained=None if built_in else self.pretrained)
        return lambda dtype, device: copy.deepcopy(master).to(device=device, dtype=dtype)

    def load(self) -> Clip:
        device, dtype = self.place()
        return self.loader()(dtype, device)

    def write(self, **values: Any) -> None:
        """Figures are written as they come: an interrupted run leaves what it measured."""
        from taps.files import write_json
        from taps.study.bench.measure import machine

        if self.file is not None:
            device, dtype = self.place()
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_json(
                self.file, {"machine": machine(device), "model": self.model, "dtype": str(dtype), **values}
            )


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
    quick: Annotated[bool, typer.Option("--quick", help="Two rounds: a first impression.")] = False,
) -> None:
    """The step per image: the published way and ours side by side, alternating."""
    from taps.study.bench.step import cases, measure_step

    device, dtype = target.place()
    load, rounds = target.loader(), min(repeats, 2) if quick else repeats
    rows, lines = [], []
    for case in cases(
        parse_numbers("--classes", classes), parse_numbers("--buffer", buffer), reset.split(","), views
    ):
        got = measure_step(load, case, device=device, dtype=dtype, repeats=rounds)
        rows.append(asdict(got))
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
    """One line of the table: times with views ready, times with views included, memory."""
    case = got.case
    line = [case.reset, f"{case.classes:,}", f"{case.buffer:,}"]
    for slow, fast, ratio in (
        (got.reference, got.ours, got.speedup),
        (got.reference_views, got.ours_views, got.speedup_views),
    ):
        line += ["–" if t is None else f"{t.median:.1f}±{(t.high - t.low) / 2:.1f}" for t in (slow, fast)]
        line.append("–" if ratio is None else f"{ratio:.1f}×")
    return line + ["–" if x is None else f"{x / 1024:.1f}" for x in (got.reference_mib, got.ours_mib)]


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 140)  # in a file nothing is cut off
    show_table(columns, rows, title=title, console=console)
