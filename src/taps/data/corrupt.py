"""Corruptions by name, of an image and of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from taps.data.dataset import Dataset
from taps.data.filters import FILTERS, Corruption, Rng
from taps.errors import SettingsError
from taps.registry import nearest
from taps.types import PixelArray

KINDS: dict[str, Corruption] = FILTERS


def corrupt(image: PixelArray, kind: str, severity: int, rng: Rng) -> PixelArray:
    """The image [height, width, 3] under a corruption of `KINDS`, at severity 1 (slight) to 5 (heavy).

    >>> import numpy as np
    >>> grey = np.full((8, 8, 3), 100, np.uint8)
    >>> corrupt(grey, "invert", 5, np.random.default_rng(0))[0, 0].tolist()
    [155, 155, 155]
    """
    _check(kind, severity)
    return KINDS[kind](image, severity, rng)


def kinds_of(text: str | None) -> tuple[str | None, ...]:
    """The corruptions that `--corrupt` names, one stream each: separated by commas.

    >>> kinds_of("sketch, jpeg"), kinds_of(None)
    (('sketch', 'jpeg'), (None,))
    """
    if text is None:
        return (None,)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _check(kind: str, severity: int) -> None:
    if kind not in KINDS:
        every = ", ".join(KINDS)
        raise SettingsError(
            f"Unknown corruption {kind!r}: use mix, or some of {every}.{nearest(kind, [*KINDS, 'mix'])}"
        )
    if severity not in (1, 2, 3, 4, 5):
        raise SettingsError(f"A severity of {severity} is not possible; use 1 to 5.")


@dataclass(frozen=True)
class CorruptPixels:
    """The transform of a corrupted data set. Sample i has its own generator, seeded from (seed, i)."""

    kinds: tuple[str, ...]  # of each sample; empty for none
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

    Pixels are changed when they are read; files stay as they are. `Sample.note` names the corruption.

    Args:
        dataset: The clean data set.
        kinds: One kind, several to draw from, or `mix` for all of our own.
        severity: 1 (slight) to 5 (heavy).
        seed: Decides which images, which kind and the noise itself.
        fraction: Share of the images, 0 to 1.
    """
    names = tuple(FILTERS) if kinds == "mix" else (kinds,) if isinstance(kinds, str) else tuple(kinds)
    for name in names or ("",):
        _check(name, severity)
    if not 0.0 <= fraction <= 1.0:
        raise SettingsError(f"A fraction of {fraction} of the images is not possible; use 0 to 1.")
    rng = np.random.default_rng(seed)
    hit = np.zeros(len(dataset), bool)
    hit[rng.permutation(len(dataset))[: round(fraction * len(dataset))]] = True
    drawn = rng.integers(len(names), size=len(dataset))
    chosen = tuple(names[k] if h else "" for k, h in zip(drawn, hit, strict=True))
    samples = []
    for sample, kind in zip(dataset.samples, chosen, strict=True):
        notes = (sample.note, f"{kind} {severity}" if kind else "")
        samples.append(replace(sample, note=", ".join(filter(None, notes))))
    pixels = CorruptPixels(chosen, severity, seed)
    return replace(dataset, samples=tuple(samples), transforms=(*dataset.transforms, pixels))
