"""A data set: class names, samples in a fixed order, and a way to the bytes of each."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from taps.data.sources import kinds_text
from taps.types import PixelArray

DEFAULT_TEMPLATE = "a photo of a {}."

Transform = Callable[[PixelArray, int], PixelArray]
"""Changes the pixels of the sample with the given index; must give the same pixels every time."""


class Source(Protocol):
    """Where the bytes of samples come from. It can be pickled, and read from in several processes."""

    def read(self, key: str) -> bytes:
        """The bytes of one file; a `DataError` where it cannot be read."""
        ...


@dataclass(frozen=True)
class JoinedSource:
    """Several sources by the first folder of a key; the source "" has all other keys."""

    parts: Mapping[str, Source]

    def read(self, key: str) -> bytes:
        first, _, inner = key.partition("/")
        return self.parts[first].read(inner) if first in self.parts else self.parts[""].read(key)


@dataclass(frozen=True)
class Sample:
    """One image of a data set.

    Attributes:
        path: Path inside the folder, the archive or the manifest's folder, with forward slashes.
        label: Index into the class list; None where it is unknown.
        domain: Where the layout has a level for domains.
        note: Remarks, such as the corruption applied to it.
    """

    path: str
    label: int | None
    domain: str = ""
    note: str = ""


@dataclass(frozen=True)
class Dataset:
    """A list of images with labels. Files are read when they are used.

    Attributes:
        name: Short name, for tables.
        classes: Readable class names; labels are indices into it. Empty for an unlabelled folder.
        samples: The images, in a fixed order.
        source: Gives the bytes of a key.
        template: The sentence a class name is put into for zero-shot classification.
        skipped_kinds: Numbers of files that are no images, or hidden, by kind.
        transforms: Applied to the pixels of each sample after decoding, in this order: corruptions.
    """

    name: str
    classes: tuple[str, ...]
    samples: tuple[Sample, ...]
    source: Source
    template: str = DEFAULT_TEMPLATE
    skipped_kinds: Mapping[str, int] = field(default_factory=dict)
    transforms: tuple[Transform, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        return f"<Dataset {self.name}: {len(self):,} images, {len(self.classes):,} classes>"

    @property
    def labels(self) -> list[int | None]:
        return [sample.label for sample in self.samples]

    @property
    def skipped(self) -> int:
        """Number of files that are no images, or hidden."""
        return sum(self.skipped_kinds.values())

    @property
    def left_out(self) -> str:
        """The skipped files for a sentence: "3 .svg, 1 without extension"."""
        return kinds_text(self.skipped_kinds)

    def read(self, index: int) -> bytes:
        """The file of one sample, or a PNG of its pixels where these are transformed."""
        if not self.transforms:
            return self.source.read(self.samples[index].path)
        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(self.image(index)).save(buffer, format="PNG", compress_level=1)
        return buffer.getvalue()

    def image(self, index: int) -> PixelArray:
        """The decoded and transformed pixels of one sample; an `ImageError` names a file that is broken."""
        from taps.model.images.decode import load_image

        key = self.samples[index].path
        pixels = load_image(self.source.read(key), name=key)
        for transform in self.transforms:
            # A negative index must not name another random generator than the positive one.
            pixels = transform(pixels, index % len(self))
        return pixels

    def take(self, indices: Sequence[int]) -> Dataset:
        """The same data set with only these samples, in this order."""
        order = [int(i) % len(self) for i in indices]
        transforms = tuple(_Reindexed(transform, tuple(order)) for transform in self.transforms)
        return replace(self, samples=tuple(self.samples[i] for i in order), transforms=transforms)

    def shuffled(self, seed: int = 0) -> Dataset:
        """The same data set in the order in which `taps run` streams it: folders have class after class.

        >>> from taps.data import sign_digits
        >>> digits = sign_digits()
        >>> len(digits.shuffled(seed=1)) == len(digits), digits.shuffled(1) == digits.shuffled(2)
        (True, False)
        """
        return self.take(np.random.default_rng(seed).permutation(len(self)).tolist())

    def relabelled(self, classes: tuple[str, ...], new_label: Mapping[int, int]) -> Dataset:
        """The same samples with another class list; each label is looked up in `new_label`."""
        samples = tuple(s if s.label is None else replace(s, label=new_label[s.label]) for s in self.samples)
        return replace(self, classes=classes, samples=samples)


@dataclass(frozen=True)
class _Reindexed:
    """A transform for part of a data set: each sample keeps the change it has in the whole."""

    transform: Transform
    order: tuple[int, ...]

    def __call__(self, pixels: PixelArray, index: int) -> PixelArray:
        return self.transform(pixels, self.order[index])
