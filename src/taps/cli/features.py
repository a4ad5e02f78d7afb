"""`taps features`: encode the views of data sets once, for every evaluation that follows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taps.cli.options import new_app, parse_numbers

if TYPE_CHECKING:
    from taps.data import Dataset
    from taps.model.clip import Clip

app = new_app()


@app.command()
def features(
    data: Annotated[list[str], typer.Argument(help="Names (`taps data list`) or paths of data sets.")],
    model: Annotated[str, typer.Option(help="pocket, ViT-B-16, a checkpoint's path, …")] = "pocket",
    pretrained: Annotated[str | None, typer.Option(help="Weights for an architecture.")] = None,
    views: Annotated[
        str, typer.Option(help="Views of an image, separated by commas: one store for each number.")
    ] = "1,16,64",
    corrupt: Annotated[str | None, typer.Option(help="See every image through a corruption.")] = None,
    severity: Annotated[int, typer.Option(help="Of the corruption, 1 to 5.")] = 3,
    root: Annotated[Path | None, typer.Option(envvar="TAPS_DATA", help="Folder of the named sets.")] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; by default a GPU where one is found.")
    ] = None,
) -> None:
    """Encode the views of every image once; `taps eval` then decodes nothing for methods that need no more.

    Nothing is encoded twice: a stopped pass continues, damaged parts are encoded again, and changed images
    count as another data set. Stores lie in $TAPS_FEATURES, or in ~/.cache/taps/features.
    """
    from taps.model.clip import load_clip
    from taps.study.evaluate.jobs import StreamSpec

    counts = parse_numbers("--views", views)
    opened = [StreamSpec(name, str(root) if root else None, corrupt, severity).load() for name in data]
    clip = load_clip(model, pretrained=pretrained, device=device)
    for dataset in opened:
        for count in counts:
            make_store(clip, dataset, count)


def make_store(clip: Clip, dataset: Dataset, views: int) -> None:
    """Make a store, or what is missing of it, under a progress bar; and say where it lies."""
    from taps.cli.terminal import PassProgress
    from taps.methods.settings import ViewSettings
    from taps.study.evaluate.features import FeatureStore, data_digest, store_key

    key = replace(store_key(clip, ViewSettings(views=views)), data=data_digest(dataset))
    store = FeatureStore(key, len(dataset))
    if store.damaged:
        print(f"{store.folder} is damaged in {len(store.damaged)} of {len(store.parts)} parts; made again.")
    if not store.complete:
        with PassProgress(len(dataset)) as bar:
            store.make(clip, dataset, bar.update)
    size = (store.folder / "features.npy").stat().st_size / 1e6
    broken = f", {len(store.broken)} cannot be read" if store.broken else ""
    print(
        f"{dataset.name}: {len(dataset):,} images × {views} views{broken}, {size:,.1f} MB in {store.folder}"
    )
