"""A few labelled images of each class, chosen with a seed."""

from __future__ import annotations

import numpy as np

from taps.data.dataset import Dataset
from taps.data.names import shown
from taps.errors import DataError


def few_shot(dataset: Dataset, shots: int, seed: int) -> list[int]:
    """Indices of `shots` images of every class, class by class."""
    if shots < 1:
        raise DataError(f"{shots} shots are not possible; give at least one.")
    if not dataset.classes:
        raise DataError(f"{dataset.name} has no classes to take shots of: give class names.")
    of_class: list[list[int]] = [[] for _ in dataset.classes]
    for index, sample in enumerate(dataset.samples):
        if sample.label is not None:
            of_class[sample.label].append(index)
    short = [
        f"{name} ({len(found)})"
        for name, found in zip(dataset.classes, of_class, strict=True)
        if len(found) < shots
    ]
    if short:
        raise DataError(
            f"{dataset.name} has classes with fewer than {shots} images: {shown(short)}; "
            "take fewer of each, or add images."
        )
    rng = np.random.default_rng(seed)
    return [int(i) for found in of_class for i in rng.choice(found, size=shots, replace=False)]
