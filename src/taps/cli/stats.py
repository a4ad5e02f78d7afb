"""`taps stats` and `taps stats merge`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taps.cli.options import check_new, new_app, unfinished_beside, with_options
from taps.training.options import StatsCluster, StatsOptions

if TYPE_CHECKING:
    from taps.data import Dataset
    from taps.prompts.source import SourceStats

app = new_app(invoke_without_command=True)

Precise = Annotated[bool, typer.Option("--precise", help="Keep full precision, for parts to be merged.")]
Root = Annotated[Path | None, typer.Option(envvar="TAPS_DATA", help="Folder of the named data sets.")]


@app.callback()
@with_options
def stats(
    context: typer.Context,
    *,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Source set: whatever `taps eval` takes (docs/data.md); several are joined."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write.")] = None,
    root: Root = None,
    options: StatsOptions,
    precise: Precise = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted pass.")] = False,
    cluster: StatsCluster,
) -> None:
    """Collect mean and variance of the image tower's features over a source set, whole and per class."""
    if context.invoked_subcommand is not None:
        return
    from taps.cli.train import labelled_images
    from taps.cluster.connect import find_ray
    from taps.errors import SettingsError

    if not data or out is None:
        raise SettingsError("Give the source set with --data and the file to write with --out.")
    find_ray(cluster.ray, cluster)
    unfinished = unfinished_beside(out, "pass", resume=resume)
    images = labelled_images(data, root=root)
    out.parent.mkdir(parents=True, exist_ok=True)
    save(collect(images, options, cluster, unfinished, resume), out, precise)
    if unfinished.is_dir():
        shutil.rmtree(unfinished)
    unfinished.unlink(missing_ok=True)


def collect(
    images: Dataset, options: StatsOptions, cluster: StatsCluster, unfinished: Path, resume: bool
) -> SourceStats:
    """The statistics, made here or on a cluster."""
    from taps.cli.progress import PassProgress
    from taps.clip import load_clip
    from taps.prompts.choose import trained_prompts
    from taps.training.stats import check_layers, collect_stats

    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device)
    check_layers(options.layers, clip)
    prompts = trained_prompts(clip, options.prompts, family="maple")
    with PassProgress(len(images)) as bar:
        if cluster.ray is None:
            found = collect_stats(
                clip,
                prompts,
                images,
                layers=options.layers,
                per_class=options.per_class,
                batch=options.batch,
                progress_file=unfinished,
                resume=resume,
                report=bar.update,
            )
        else:
            from taps.cluster.stats import stats_on_ray

            found = stats_on_ray(cluster, images, options, unfinished, bar.update)
    if bar.rate is not None:
        start = "" if cluster.ray is None else ", the start of the workers included"
        print(f"{bar.rate:,.0f} images a second{start}.")
    return found


@app.command()
def merge(
    files: list[Path] = typer.Argument(..., help="Statistics made of different images, best with --precise."),
    out: Path = typer.Option(..., "--out", help="File to write."),
    precise: Precise = False,
) -> None:
    """Merge statistics of several sets of images into those of all of them."""
    from taps.prompts.source import SourceStats, merge_stats

    check_new(out)
    save(merge_stats([SourceStats.load(file) for file in files]), out, precise)


def save(stats: SourceStats, out: Path, precise: bool) -> None:
    import torch

    stats.save(out, None if precise else torch.float16)
    print(f"{out}: {stats.count:,} images, {len(stats.classes)} classes, blocks {stats.layers}.")
