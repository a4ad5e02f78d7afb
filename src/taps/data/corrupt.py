"""Corruptions by name, of an image and of a data set: our own, and fifteen as `imagenet-c-like/`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from taps.data.dataset import Dataset
from taps.data.filters import FILTERS, Corruption, Rng
from taps.data.imagenet_c import IMAGENET_C
from taps.errors import SettingsError
from taps.types import PixelArray

KINDS: dict[str, Corruption] = {**FILTERS, **IMAGENET_C}
ALL_C, BENCHMARK = "imagenet-c-like", "imagenet-c"


def corrupt(image: PixelArray, kind: str, severity: int, rng: Rng) -> PixelArray:
    """The image [height, width, 3] under a corruption of `KINDS`, at severity 1 (slight) to 5 (heavy).

    >>> import numpy as np
    >>> grey = np.full((8, 8, 3), 100, np.uint8)
    >>> corrupt(grey, "invert", 5, np.random.default_rng(0))[0, 0].tolist()
    [155, 155, 155]
    """
    kind = _named(kind)
    _check(kind, severity)
    return KINDS[kind](image, severity, rng)


def kinds_of(text: str | None) -> tuple[str | None, ...]:
    """The corruptions that `--corrupt` names, one stream each: separated by commas, or all of a group.

    >>> kinds_of("sketch, imagenet-c/fog"), kinds_of(None), len(kinds_of("imagenet-c"))
    (('sketch', 'imagenet-c-like/fog'), (None,), 15)
    """
    if text is None:
        return (None,)
    names = [_named(part.strip()) for part in text.split(",") if part.strip()]
    return tuple(kind for name in names for kind in (IMAGENET_C if name == ALL_C else (name,)))


def _named(kind: str) -> str:
    """A corruption's name. The benchmark's own is accepted, but results must not carry it."""
    group, slash, rest = kind.partition("/")
    return f"{ALL_C}{slash}{rest}" if group == BENCHMARK else kind


def _check(kind: str, severity: int) -> None:
    if kind not in KINDS:
        raise SettingsError(f"Unknown corruption {kind!r}: use mix, {ALL_C}, or some of {', '.join(KINDS)}.")
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
    names = tuple(map(_named, names))
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
