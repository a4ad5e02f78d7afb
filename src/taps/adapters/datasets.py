"""Data sets of Hugging Face `datasets` and of torch as `taps.data.Dataset`, and the way back to torch."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import Dataset as MapDataset

from taps.data import Dataset
from taps.data.dataset import Sample
from taps.data.names import read_names
from taps.data.sources import read_file
from taps.errors import DataError
from taps.images.decode import load_image
from taps.types import PixelArray


def from_huggingface(
    dataset: Any,
    *,
    image: str | None = None,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    name: str = "huggingface",
) -> Dataset:
    """A data set that `datasets.load_dataset(..., split=...)` returned; nothing is decoded or copied.

    Args:
        dataset: One split, not streamed.
        image: Column of the images; the first with an `Image` feature unless given.
        label: Column of the labels; the first with a `ClassLabel` feature, or "label", unless given.
        classes: Names of the classes; those of the `ClassLabel` unless given.
        name: Short name, for tables.
    """
    features = getattr(dataset, "features", None)
    if features is None or not hasattr(dataset, "column_names") or not hasattr(dataset, "__getitem__"):
        raise DataError(
            'Give one split of a Hugging Face data set, not streamed: load_dataset(..., split="test").'
        )
    image = image or _first(features, "decode") or "image"
    label = label or _first(features, "names") or ("label" if "label" in features else None)
    for column in (image, *([label] if label else [])):
        if column not in features:
            raise DataError(f"Unknown column {column!r}; the columns are {', '.join(features)}.")
    if classes is None and label is not None:
        classes = getattr(features[label], "names", None)
    values = list(dataset[label]) if label is not None else [None] * len(dataset)
    if getattr(features[image], "decode", False):  # the stored bytes: images are decoded once, by the learner
        dataset = dataset.cast_column(image, type(features[image])(decode=False))
    return make_dataset(ItemSource(dataset, image), values, classes, name)


def _first(features: Any, attribute: str) -> str | None:
    """The first column whose feature has an attribute: `decode` is an image's, `names` a class label's."""
    return next((column for column, feature in features.items() if hasattr(feature, attribute)), None)


def from_torch(dataset: Any, classes: Sequence[str] | None = None, name: str = "torch") -> Dataset:
    """A map-style torch data set of pairs (image, label).

    Images may be whatever `load_image` takes: Pillow images, arrays, tensors C×H×W (uint8, or 0 to 1). Leave
    normalisation and random crops out: the learner makes its own views. Labels are taken from `targets` where
    the data set has them; else every item is read once.

    Args:
        dataset: It has `__len__` and `__getitem__`.
        classes: Names of the classes; those of `dataset.classes` unless given.
        name: Short name, for tables.
    """
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise DataError("A torch data set must be map-style here: with __len__ and __getitem__.")
    targets = getattr(dataset, "targets", None)
    values = [dataset[i][1] for i in range(len(dataset))] if targets is None else list(targets)
    return make_dataset(ItemSource(dataset, 0), values, classes or getattr(dataset, "classes", None), name)


class TorchDataset(MapDataset[tuple[PixelArray, int]]):
    """A TAPS data set for torch's `DataLoader`: pairs of pixels (H×W×3, uint8) and label, -1 if unknown."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.classes = list(dataset.classes)
        self.targets = [-1 if label is None else label for label in dataset.labels]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[PixelArray, int]:
        return self.dataset.image(index), self.targets[index]


@dataclass(frozen=True)
class ItemSource:
    """Reads the image of item `key`, a number.

    Attributes:
        items: Anything that is indexed by a number.
        image: Where the image is in an item: a column's name or a place in a tuple.
    """

    items: Any
    image: str | int

    def read(self, key: str) -> bytes:
        """The bytes of the image: as it is stored, or a PNG of its pixels."""
        try:
            image = self.items[int(key)][self.image]
            if isinstance(image, dict):  # a Hugging Face image that was not decoded
                image = image.get("bytes") or image.get("path")
            if isinstance(image, bytes):
                return image
            if isinstance(image, str | Path):
                return read_file(Path(image))
            buffer = io.BytesIO()
            Image.fromarray(load_image(image, name=key)).save(buffer, format="PNG", compress_level=1)
            return buffer.getvalue()
        except (LookupError, TypeError, ValueError, OSError) as error:
            raise DataError(f"Item {key} cannot be read ({error}): check the data set.") from error


def make_dataset(
    source: ItemSource, values: Sequence[Any], classes: Sequence[str] | None, name: str
) -> Dataset:
    """A data set of numbered items.

    Args:
        source: Reads the images.
        values: The label of each: a number, or a class's name; negative, empty or None where it is unknown.
        classes: Names of the classes; the names among the labels, sorted, unless given.
        name: Short name, for tables.
    """
    known = [None if value is None or value == "" else value for value in values]
    texts = sorted({value for value in known if isinstance(value, str)})
    if classes is None and not texts and any(value is not None for value in known):
        raise DataError("The labels are numbers; give the names of the classes they count.")
    names = read_names(classes or texts) if classes or texts else ()
    places = {name: index for index, name in enumerate(names)}
    samples = tuple(Sample(str(index), _label(value, places)) for index, value in enumerate(known))
    return Dataset(name, names, samples, source)


def _label(value: Any, places: dict[str, int]) -> int | None:
    """The index of a label that is a name or a number."""
    if isinstance(value, str):
        plain = " ".join(value.replace("_", " ").split())
        if plain not in places:
            raise DataError(f"The label {value!r} is not one of the {len(places)} classes.")
        return places[plain]
    index = -1 if value is None else int(np.asarray(value))
    if index >= len(places):
        raise DataError(
            f"The label {index} is out of range: only {len(places)} classes: give all their names."
        )
    return index if index >= 0 else None
