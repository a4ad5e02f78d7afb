"""A data set seen through corruptions: each image always through the same one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from taps.data.corrupt import check_kind, corrupt, named
from taps.data.dataset import Dataset
from taps.data.filters import FILTERS
from taps.errors import SettingsError
from taps.types import PixelArray


@dataclass(frozen=True)
class CorruptPixels:
    """The transform of a corrupted data set. Sample i has its own generator, seeded from (seed, i).

    Attributes:
        kinds: Which corruption each sample has; an empty string for none.
        severity: 1 to 5.
        seed: Of the generators.
    """

    kinds: tuple[str, ...]
    severity: int
    seed: int

    def __call__(self, pixels: PixelArray, index: int) -> PixelArray:
        kind = self.kinds[index]
        if not kind:
            return pixels
        return corrupt(pixels, kind, self.severity, np.random.default_rng([self.seed, index]))


def corrupt_dataset(
    dataset: Dataset, kinds: str | Sequence[str], severity: int = 3, seed: int = 0, fraction: float = 1.0
) -> Dataset:
    """The data set with a fraction of its images corrupted, each by one of the kinds drawn with the seed.

    Args:
        dataset: What to corrupt; its files stay as they are, pixels are changed when they are read.
        kinds: One kind, several to draw from, or `mix` for all of our own.
        severity: 1 (slight) to 5 (heavy).
        seed: Decides which images, which kind and the noise itself.
        fraction: How many of the images, 0 to 1.

    Returns:
        A data set whose samples say in `note` what was done to them.
    """
    names = tuple(FILTERS) if kinds == "mix" else (kinds,) if isinstance(kinds, str) else tuple(kinds)
    names = tuple(map(named, names))
    for name in names or ("",):
        check_kind(name, severity)
    if not 0.0 <= fraction <= 1.0:
        raise SettingsError(f"A fraction of {fraction} of the images is not possible; use 0 to 1.")
    rng = np.random.default_rng(seed)
    hit = np.zeros(len(dataset), bool)
    hit[rng.permutation(len(dataset))[: round(fraction * len(dataset))]] = True
    drawn = rng.integers(len(names), size=len(dataset))
    chosen = tuple(names[k] if h else "" for k, h in zip(drawn, hit, strict=True))
    samples = tuple(
        replace(
            sample, note=", ".join(filter(None, (sample.note, f"{kind} {severity}"))) if kind else sample.note
        )
        for sample, kind in zip(dataset.samples, chosen, strict=True)
    )
    pixels = CorruptPixels(chosen, severity, seed)
    return replace(dataset, samples=samples, transforms=(*dataset.transforms, pixels))
