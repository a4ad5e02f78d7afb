"""Training images: one random crop each, decoded a batch ahead of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from taps.images.prefetch import prefetch
from taps.images.views import make_views, sample_generator
from taps.types import PixelArray

WORKERS = 4
T = TypeVar("T")


class Images(Protocol):
    """What is needed of a data set; every `taps.data.Dataset` is one."""

    @property
    def name(self) -> str: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> list[int | None]: ...
    def image(self, index: int) -> PixelArray: ...
    def __len__(self) -> int: ...


def random_crop(images: Images, index: int, *, size: int, seed: int, draw: int) -> Tensor:
    """Crop number `draw` of an image, perhaps mirrored [3, size, size]; the same whenever it is asked for."""
    generator = sample_generator(seed, draw * len(images) + index)
    return make_views(images.image(index), views=2, size=size, generator=generator)[1]


def crop_batches(
    images: Images, batches: Sequence[Sequence[int]], *, size: int, seed: int, draw: int
) -> Iterator[Tensor]:
    """The crops of each batch [N, 3, size, size], uint8; the next batch is made while one is used."""

    def load(index: int) -> Tensor:
        return random_crop(images, index, size=size, seed=seed, draw=draw)

    yield from map(torch.stack, loaded_ahead(batches, load))


def loaded_ahead(batches: Sequence[Sequence[int]], load: Callable[[int], T]) -> Iterator[list[T]]:
    """What `load` makes of each batch's indices, by threads, one batch ahead."""
    depth = 2 * max(map(len, batches), default=1)
    items = prefetch(chain.from_iterable(batches), load, threads=WORKERS, depth=depth)
    for batch in batches:
        yield [future.result() for future in islice(items, len(batch))]


def check_images(images: Images, indices: Sequence[int]) -> None:
    """Decode every image once: a broken one is named before hours are spent."""
    with ThreadPoolExecutor(WORKERS) as pool:
        for _ in pool.map(lambda index: images.image(index).shape, indices):
            pass


def in_batches(indices: Sequence[int], size: int) -> list[Sequence[int]]:
    """
    >>> in_batches([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    return [indices[start : start + size] for start in range(0, len(indices), size)]
