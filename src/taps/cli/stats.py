"""`taps stats` and `taps stats merge`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import typer

app = typer.Typer(invoke_without_command=True, add_completion=False)


@app.callback()
def stats(
    context: typer.Context,
    data: list[str] = typer.Option(
        [], "--data", help="Source set: folder of class folders or a zip of one; several are joined."
    ),
    out: Path | None = typer.Option(None, "--out", help="File to write."),
    model: str = typer.Option("pocket", "--model", help="The frozen CLIP: a name, a file or a directory."),
    pretrained: str | None = typer.Option(None, "--pretrained", help="Weights of a named architecture."),
    prompts: str | None = typer.Option(
        None,
        "--prompts",
        help="Directory of the prompts that will be aligned; the shipped MaPLe ones if not given.",
    ),
    root: Path | None = typer.Option(
        None, "--root", envvar="TAPS_DATA", help="Folder of the named data sets."
    ),
    per_class: bool = typer.Option(False, "--per-class", help="Statistics of each class, too."),
    layers: str = typer.Option("0,1", "--layers", help="Vision blocks, separated by commas."),
    batch: int = typer.Option(64, "--batch", min=1, help="Images per forward."),
    precise: bool = typer.Option(False, "--precise", help="Keep full precision, for parts to be merged."),
    device: str | None = typer.Option(None, "--device", help="cpu or cuda; a GPU is used if there is one."),
    resume: bool = typer.Option(False, "--resume", help="Go on where an interrupted pass stopped."),
    ray: str | None = typer.Option(
        None,
        "--ray",
        metavar="[ADDRESS]",
        help="Make parts on a Ray cluster: auto, local or HOST:PORT; paths must be shared.",
    ),
    parts: int = typer.Option(64, "--parts", min=1, help="Parts, each a task of the cluster."),
    cpus_per_run: float = typer.Option(1.0, "--cpus-per-run", help="Cores of each task."),
    gpus_per_run: float = typer.Option(0.0, "--gpus-per-run", help="GPUs of each task; may be a share."),
) -> None:
    """Collect mean and variance of the image tower's features over a source set, whole and per class."""
    if context.invoked_subcommand is not None:
        return
    from taps.cli.options import parse_numbers, unfinished_beside
    from taps.cli.sources import labelled_images
    from taps.clip import load_clip
    from taps.cluster.connect import find_ray
    from taps.errors import SettingsError
    from taps.prompts.choose import trained_prompts
    from taps.training.stats import check_layers, collect_stats

    if not data or out is None:
        raise SettingsError("Give the source set with --data and the file to write with --out.")
    numbers = parse_numbers("--layers", layers)
    find_ray(ray)
    unfinished = unfinished_beside(out, "pass", resume=resume)
    clip = load_clip(model, pretrained=pretrained, device=device)
    check_layers(numbers, clip)
    chosen = trained_prompts(clip, prompts, family="maple")
    images = labelled_images(data, root=root)
    out.parent.mkdir(parents=True, exist_ok=True)
    if ray is not None:
        from taps.cluster.stats import PartSettings, stats_on_ray

        settings = PartSettings(model, pretrained, prompts, list(numbers), per_class, batch, device)
        with PassBar(len(images)) as bar:
            merged, rate = stats_on_ray(
                ray, images, settings, unfinished, parts=parts, cpus=cpus_per_run, gpus=gpus_per_run,
                report=bar.update,
            )  # fmt: skip
        save(merged, out, precise)
        shutil.rmtree(unfinished)
        print(f"{rate:.1f} images a second on the cluster, its start included.")
        return
    with PassBar(len(images)) as bar:
        found = collect_stats(
            clip,
            chosen,
            images,
            layers=numbers,
            per_class=per_class,
            batch=batch,
            progress_file=unfinished,
            resume=resume,
            report=bar.update,
        )
    save(found, out, precise)
    unfinished.unlink(missing_ok=True)


@app.command()
def merge(
    files: list[Path] = typer.Argument(..., help="Statistics made of different images, best with --precise."),
    out: Path = typer.Option(..., "--out", help="File to write."),
    precise: bool = typer.Option(False, "--precise", help="Keep full precision, to be merged again."),
) -> None:
    """Merge statistics of several sets of images into those of all of them."""
    from taps.cli.options import check_new
    from taps.prompts.source import SourceStats, merge_stats

    check_new(out)
    save(merge_stats([SourceStats.load(file) for file in files]), out, precise)


def save(stats: object, out: Path, precise: bool) -> None:
    import torch

    from taps.prompts.source import SourceStats

    assert isinstance(stats, SourceStats)
    stats.save(out, None if precise else torch.float16)
    print(f"{out}: {stats.count:,} images, {len(stats.classes)} classes, blocks {stats.layers}.")


class PassBar:
    """A progress bar where somebody watches."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar = Progress(
            TextColumn("images"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            disable=not sys.stderr.isatty(),
        )
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> PassBar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, done: int, total: int) -> None:
        self.bar.update(self.task, completed=done)
