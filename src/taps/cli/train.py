"""`taps train`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from taps.prompts import Prompts

app = typer.Typer(add_completion=False)


@app.command()
def train(
    family: str = typer.Argument(..., help="What to train: coop, cocoop, maple or proda."),
    data: list[str] = typer.Option(
        ..., "--data", help="Folder of class folders, or a zip of one; given several times, they are joined."
    ),
    out: Path = typer.Option(..., "--out", help="Directory for the prompts; it must not exist yet."),
    model: str = typer.Option("pocket", "--model", help="The frozen CLIP: a name, a file or a directory."),
    pretrained: str | None = typer.Option(None, "--pretrained", help="Weights of a named architecture."),
    root: Path | None = typer.Option(
        None, "--root", envvar="TAPS_DATA", help="Folder of the named data sets."
    ),
    shots: int = typer.Option(16, "--shots", help="Images of each class."),
    epochs: int | None = typer.Option(None, "--epochs", help="Passes over them."),
    batch: int | None = typer.Option(None, "--batch", help="Images a step."),
    lr: float | None = typer.Option(None, "--lr", help="Learning rate the cosine starts from."),
    seed: int = typer.Option(0, "--seed", help="Which images, which crops, which order, which start."),
    limit_classes: int | None = typer.Option(None, "--limit-classes", help="Train on so many classes only."),
    device: str | None = typer.Option(None, "--device", help="cpu or cuda; a GPU is used if there is one."),
    resume: bool = typer.Option(False, "--resume", help="Go on where an interrupted training stopped."),
) -> None:
    """Train prompts on a few images of each class; after every epoch it may be stopped and resumed."""
    from dataclasses import replace

    from taps.cli.options import unfinished_beside
    from taps.cli.progress import TrainingProgress
    from taps.cli.sources import labelled_images
    from taps.clip import load_clip
    from taps.data import few_shot
    from taps.training.recipe import recipe_for
    from taps.training.train import train_prompts

    recipe = recipe_for(family, epochs=epochs, batch=batch, lr=lr)
    unfinished = unfinished_beside(out, "training", resume=resume)
    images = labelled_images(data, root=root, classes=limit_classes, seed=seed)
    chosen = few_shot(images, shots, seed)
    clip = load_clip(model, pretrained=pretrained, device=device)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TrainingProgress(recipe.epochs, family) as bar:
        prompts = train_prompts(
            clip,
            images,
            family,
            recipe,
            indices=chosen,
            seed=seed,
            progress_file=unfinished,
            resume=resume,
            report=bar.update,
        )
    save_whole(replace(prompts, record={**prompts.record, "shots": shots}), out)
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
