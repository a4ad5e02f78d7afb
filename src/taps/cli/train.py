"""`taps train`: prompts from a few labelled images; and the labelled images of one or several data sets."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from taps.cli.options import new_app, unfinished_beside, with_options
from taps.errors import DataError

if TYPE_CHECKING:
    from taps.data import Dataset
    from taps.prompts import Prompts

app = new_app()


@dataclass(frozen=True)
class TrainOptions:
    """What prompts are trained on, and how.

    Attributes:
        family: What to train: coop, cocoop, maple or proda.
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
    shots: int = 16
    epochs: int | None = None
    batch: int | None = None
    lr: float | None = None
    seed: int = 0
    limit_classes: int | None = None
    device: str | None = None
    resume: bool = field(default=False, metadata={"flags": ("--resume",)})


@app.command()
@with_options
def train(options: TrainOptions) -> None:
    """Train prompts on a few images of each class; after every epoch it may be stopped and resumed."""
    from taps.cli.progress import TrainingProgress
    from taps.clip import load_clip
    from taps.data import few_shot
    from taps.training.recipe import recipe_for
    from taps.training.train import train_prompts

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
    unfinished.unlink(missing_ok=True)
    last = prompts.record["history"][-1]
    print(f"{out}: {family} prompts, training loss {last['loss']:.3f}, accuracy {last['accuracy']:.1%}.")


def save_whole(prompts: Prompts, out: Path) -> None:
    """Write a directory that is there as a whole or not at all."""
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        prompts.save_pretrained(part)
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


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
            replace(s, key=f"{number}/{s.key}", label=None if s.label is None else place[s.label])
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
