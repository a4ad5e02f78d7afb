"""Passes over images: batches decoded ahead of the model, random crops, files to resume from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from taps.errors import StateError
from taps.files import read_tensors
from taps.model.images.prefetch import prefetch
from taps.model.images.views import make_views, sample_generator
from taps.types import PixelArray

WORKERS = 4
T = TypeVar("T")


class Images(Protocol):
    """What training needs of a data set; every `taps.data.Dataset` is one."""

    @property
    def name(self) -> str: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> list[int | None]: ...
    def image(self, index: int) -> PixelArray: ...
    def __len__(self) -> int: ...


def random_crop(images: Images, index: int, *, size: int, seed: int, draw: int) -> Tensor:
    """Crop number `draw` of an image, perhaps mirrored [3, size, size]; always the same."""
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
    """The results of `load` on each batch's indices, by threads, one batch ahead."""
    depth = 2 * max(map(len, batches), default=1)
    items = prefetch(chain.from_iterable(batches), load, threads=WORKERS, depth=depth)
    for batch in batches:
        yield [future.result() for future in islice(items, len(batch))]


def check_images(images: Images, indices: Sequence[int]) -> None:
    """Decode every image once: a broken one is reported before hours are spent."""
    with ThreadPoolExecutor(WORKERS) as pool:
        for _ in pool.map(lambda index: images.image(index).shape, indices):
            pass


def in_batches(indices: Sequence[int], size: int) -> list[Sequence[int]]:
    """
    >>> in_batches([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    return [indices[start : start + size] for start in range(0, len(indices), size)]


def read_unfinished(
    path: Path, identity: dict[str, Any], what: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The saved state of an interrupted training or pass; refused if another one's."""
    try:
        tensors, meta = read_tensors(path)
    except Exception as error:
        raise StateError(f"{path} holds no readable {what} ({error}); remove it to start anew.") from error
    for name, mine in identity.items():
        if meta["identity"].get(name) != mine:
            raise StateError(
                f"The unfinished {what} in {path} has {name}={meta['identity'].get(name)!r}, "
                f"this one {mine!r}; use the same options, or remove the file to start anew."
            )
    return tensors, meta
