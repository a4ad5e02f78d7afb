"""`taps train` and `taps stats`: prompts and source statistics from labelled images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taps.cli.options import check_new, new_app, unfinished_beside, with_options
from taps.disk import dissolve, new_folder
from taps.errors import DataError, SettingsError
from taps.files import remove_tensors
from taps.study.training.options import PARTS, StatsCluster, StatsOptions

if TYPE_CHECKING:
    from taps.data import Dataset
    from taps.model.prompts import Prompts
    from taps.model.prompts.source import SourceStats

app = new_app()
stats_app = new_app(invoke_without_command=True)
app.add_typer(stats_app, name="stats")

Precise = Annotated[bool, typer.Option("--precise", help="Keep full precision, for parts to be merged.")]
Root = Annotated[Path | None, typer.Option(envvar="TAPS_DATA", help="Folder of the named data sets.")]


@dataclass(frozen=True)
class TrainOptions:
    """What prompts are trained on, and how.

    Attributes:
        family: What to train: coop, cocoop, maple, proda, or a plugin's family.
        data: Folder of class folders, or a zip of one; given several times, they are joined.
        out: Directory for the prompts; it must not exist yet.
        model: pocket, ViT-B-16, a checkpoint's path, …
        pretrained: Weights for an architecture: a file, openai, laion2b.
        root: Folder of the named data sets.
        shots: Images of each class.
        epochs: Passes over them.
        batch: Images a step.
        lr: Learning rate the cosine starts from.
        seed: Which images, which crops, which order, which start.
        limit_classes: Train on so many classes only.
        device: cpu or cuda; by default a GPU where one is found.
        resume: Go on where an interrupted training stopped.
    """

    family: str = field(metadata={"argument": True})
    data: list[str]
    out: Path
    model: str = "pocket"
    pretrained: str | None = None
    root: Path | None = field(default=None, metadata={"envvar": "TAPS_DATA"})
    shots: int = field(default=16, metadata={"min": 1})
    epochs: int | None = field(default=None, metadata={"min": 1})
    batch: int | None = field(default=None, metadata={"min": 1})
    lr: float | None = None
    seed: int = 0
    limit_classes: int | None = field(default=None, metadata={"min": 2})
    device: str | None = None
    resume: bool = field(default=False, metadata={"flags": ("--resume",)})


@app.command()
@with_options
def train(options: TrainOptions) -> None:
    """Train prompts on a few images of each class; after every epoch it may be stopped and resumed."""
    from taps.cli.terminal import TrainingProgress
    from taps.data import few_shot
    from taps.model.clip import load_clip
    from taps.study.training.recipe import recipe_for
    from taps.study.training.train import train_prompts

    family, out = options.family, options.out
    recipe = recipe_for(family, epochs=options.epochs, batch=options.batch, lr=options.lr)
    unfinished = unfinished_beside(out, "training", resume=options.resume)
    images = labelled_images(
        options.data, root=options.root, classes=options.limit_classes, seed=options.seed
    )
    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TrainingProgress(recipe.epochs, family) as bar:
        prompts = train_prompts(
            clip,
            images,
            family,
            recipe,
            indices=few_shot(images, options.shots, options.seed),
            seed=options.seed,
            progress_file=unfinished,
            resume=options.resume,
            report=bar.update,
        )
    save_whole(replace(prompts, record={**prompts.record, "shots": options.shots}), out)
    remove_tensors(unfinished)
    last = prompts.record["history"][-1]
    print(f"{out}: {family} prompts, training loss {last['loss']:.3f}, accuracy {last['accuracy']:.1%}.")


def save_whole(prompts: Prompts, out: Path) -> None:
    """Write a directory whole or not at all."""
    with new_folder(out) as part:
        prompts.save_pretrained(part)


def labelled_images(
    paths: Sequence[str], *, root: Path | None = None, classes: int | None = None, seed: int = 0
) -> Dataset:
    """The training split of one or several data sets, or only some of its classes."""
    from taps.data import load_dataset, subset_classes

    joined = join([load_dataset(path, root=root, split="train") for path in paths])
    if not joined.classes:
        raise DataError(f"{joined.name} has no class folders; images with labels are needed.")
    return joined if classes is None else subset_classes(joined, classes, seed)


def join(parts: Sequence[Dataset]) -> Dataset:
    """Data sets as one: classes of the same name are the same class."""
    from taps.data.dataset import Dataset, JoinedSource

    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.transforms for part in parts):
        raise DataError("Data sets with a corruption cannot be joined; join the clean ones.")
    same = all(part.classes == first.classes for part in parts)
    names = first.classes if same else tuple(dict.fromkeys(name for part in parts for name in part.classes))
    if not same and any(len(set(part.classes)) < len(part.classes) for part in parts):
        raise DataError(
            "Data sets with two classes of one name can be joined only where their classes are the same."
        )
    samples = []
    for number, part in enumerate(parts):
        place = list(range(len(names))) if same else [names.index(name) for name in part.classes]
        samples += [
            replace(s, path=f"{number}/{s.path}", label=None if s.label is None else place[s.label])
            for s in part.samples
        ]
    return Dataset(
        name="+".join(part.name for part in parts),
        classes=names,
        samples=tuple(samples),
        source=JoinedSource({str(number): part.source for number, part in enumerate(parts)}),
        template=first.template,
        skipped_kinds=sum((Counter(part.skipped_kinds) for part in parts), Counter()),
    )


@stats_app.callback()
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
    from taps.cluster.connect import find_ray

    if not data or out is None:
        raise SettingsError("Give the source set with --data and the file to write with --out.")
    find_ray(cluster.ray, cluster)
    unfinished = unfinished_beside(out, "pass", resume=resume)
    images = labelled_images(data, root=root)
    out.parent.mkdir(parents=True, exist_ok=True)
    save(collect(images, options, cluster, unfinished, resume), out, precise)
    if unfinished.is_dir():
        dissolve(unfinished, *PARTS)
    remove_tensors(unfinished)


def collect(
    images: Dataset, options: StatsOptions, cluster: StatsCluster, unfinished: Path, resume: bool
) -> SourceStats:
    """The statistics, made here or on a cluster."""
    from taps.cli.terminal import PassProgress
    from taps.model.clip import load_clip
    from taps.model.prompts.choose import vision_prompts
    from taps.study.training.stats import collect_stats, parse_layers

    clip = load_clip(options.model, pretrained=options.pretrained, device=options.device)
    layers = parse_layers(options.layers, clip)
    prompts = vision_prompts(clip, options.prompts)
    with PassProgress(len(images)) as bar:
        if cluster.ray is None:
            found = collect_stats(
                clip,
                prompts,
                images,
                layers=layers,
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


@stats_app.command()
def merge(
    files: list[Path] = typer.Argument(..., help="Statistics made of different images, best with --precise."),
    out: Path = typer.Option(..., "--out", help="File to write."),
    precise: Precise = False,
) -> None:
    """Merge statistics of several sets of images into those of all of them."""
    from taps.model.prompts.source import SourceStats, merge_stats

    check_new(out)
    save(merge_stats([SourceStats.load(file) for file in files]), out, precise)


def save(stats: SourceStats, out: Path, precise: bool) -> None:
    import torch

    stats.save(out, None if precise else torch.float16)
    print(f"{out}: {stats.count:,} images, {len(stats.classes)} classes, blocks {stats.layers}.")
