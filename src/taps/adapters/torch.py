"""Data sets of torch: map-style, items of an image and a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset as MapDataset

from taps.adapters.items import ItemSource, make_dataset
from taps.data import Dataset
from taps.errors import DataError
from taps.types import PixelArray


def from_torch(dataset: Any, classes: Sequence[str] | None = None, name: str = "torch") -> Dataset:
    """A map-style torch data set of pairs (image, label).

    Images may be whatever `load_image` takes: Pillow images, arrays, tensors C×H×W (uint8, or 0 to 1). Leave
    normalisation and random crops out: views are made by the learner. Labels are taken from `targets` where
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
    """A data set of TAPS for torch's `DataLoader`: pairs of pixels (H×W×3, uint8) and label.

    Args:
        dataset: What `taps.data.load_dataset` gave. A label that nobody knows becomes -1.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.classes = list(dataset.classes)
        self.targets = [-1 if label is None else label for label in dataset.labels]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[PixelArray, int]:
        return self.dataset.image(index), self.targets[index]
