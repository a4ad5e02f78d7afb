"""Geometry of views: crop boxes and flips from one generator, the same for every backend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from taps.errors import SettingsError
from taps.types import PixelArray

Boxes = NDArray[np.int64]
Flips = NDArray[np.bool_]

AREA = (0.08, 1.0)
"""Share of the image's area a crop aims at."""
RATIO = (3 / 4, 4 / 3)
"""Width over height of a crop."""
TRIES = 10
"""Shapes drawn per crop before it falls back to the centre."""
LEAST = np.repeat([AREA[0], math.log(RATIO[0])], TRIES)
SPREAD = np.repeat([AREA[1] - AREA[0], math.log(RATIO[1] / RATIO[0])], TRIES)
"""Areas and logarithms of ratios are draws × `SPREAD` + `LEAST`."""


def sample_generator(seed: int, step: int) -> torch.Generator:
    """The generator of sample number `step`: a stream resumed there sees the same views again.

    >>> first, again = sample_generator(seed=0, step=7), sample_generator(seed=0, step=7)
    >>> torch.equal(torch.rand(2, generator=first), torch.rand(2, generator=again))
    True
    """
    wide = 1 << 64  # SeedSequence takes no negative numbers
    mixed = np.random.SeedSequence([seed % wide, step % wide]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed[0]))


def sample_crops(height: int, width: int, count: int, generator: torch.Generator) -> tuple[Boxes, Flips]:
    """Draw random resized crops: area uniform in `AREA`, ratio log-uniform in `RATIO`, place uniform.

    The first of `TRIES` shapes that fits the image is taken, else the largest allowed central crop.

    Returns:
        Boxes [count, 4] as (top, left, height, width), and flips [count], true half the time.
    """
    boxes, flips = sample_crops_of([(height, width)], count, [generator])
    return boxes[0], flips[0]


def sample_crops_of(
    sizes: Sequence[tuple[int, int]], count: int, generators: Sequence[torch.Generator]
) -> tuple[Boxes, Flips]:
    """`sample_crops` of several images (height, width), at little more than the cost of one.

    Returns:
        Boxes [images, count, 4] and flips [images, count].
    """
    shape, dtype = (count, 2 * TRIES + 3), torch.float64
    drawn = [torch.rand(shape, generator=each, dtype=dtype).numpy() for each in generators]
    draws = np.concatenate(drawn)  # from here on a row for each crop
    sides = np.array([(*size, *central_crop(*size)) for size in sizes], dtype=np.float64)
    room, centre = sides.repeat(count, axis=0).T.reshape(2, 2, -1)

    scaled = draws[:, : 2 * TRIES] * SPREAD + LEAST
    area, ratio = (room[0] * room[1])[:, None] * scaled[:, :TRIES], np.exp(scaled[:, TRIES:])
    shapes = np.empty((2, len(draws), TRIES))
    np.divide(area, ratio, out=shapes[0])
    np.multiply(area, ratio, out=shapes[1])
    np.rint(np.sqrt(shapes, out=shapes), out=shapes)
    fits = np.logical_and.reduce((shapes > 0) & (shapes <= room[:, :, None]), axis=0)
    row, first = np.arange(len(draws)), fits.argmax(axis=1)
    found = fits[row, first]
    chosen = np.where(found, shapes[:, row, first], centre)
    spare = room - chosen
    corner = np.where(found, draws[:, 2 * TRIES : 2 * TRIES + 2].T * (spare + 1), spare / 2)
    boxes = np.concatenate([corner, chosen]).T.astype(np.int64)  # which rounds corners down
    return boxes.reshape(len(sizes), count, 4), (draws[:, -1] < 0.5).reshape(len(sizes), count)


def central_crop(height: int, width: int) -> tuple[int, int]:
    """Height and width of the largest crop whose ratio lies in `RATIO`.

    >>> central_crop(100, 1000)
    (100, 133)
    """
    if width < RATIO[0] * height:
        return min(height, max(1, round(width / RATIO[0]))), width
    if width > RATIO[1] * height:
        return height, min(width, max(1, round(height * RATIO[1])))
    return height, width


RESIZES = ("shortest", "squash")
INTERPOLATIONS = ("bicubic", "bilinear")


@dataclass(frozen=True)
class Framing:
    """How view 0 shows an image.

    Attributes:
        size: Side of a view in pixels.
        resize: "shortest" (short side to `size`, centre crop) or "squash" (all of it, out of shape).
        interpolation: "bicubic" or "bilinear".
    """

    size: int
    resize: str = "shortest"
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        if self.resize not in RESIZES or self.interpolation not in INTERPOLATIONS:
            raise SettingsError(
                f"resize={self.resize!r}, interpolation={self.interpolation!r} is unknown; "
                f"use one of {', '.join(RESIZES)} and one of {', '.join(INTERPOLATIONS)}."
            )

    def view(self, image: PixelArray) -> Tensor:
        """View 0 by Pillow [3, size, size]."""
        height, width = image.shape[:2]
        if height == width == self.size:
            return torch.from_numpy(image).permute(2, 0, 1)
        filter = Image.Resampling.BICUBIC if self.cubic else Image.Resampling.BILINEAR
        view = Image.fromarray(image).resize((self.size, self.size), filter, box=self.box(height, width))
        return torch.from_numpy(np.array(view)).permute(2, 0, 1)

    @property
    def cubic(self) -> bool:
        return self.interpolation == "bicubic"

    def box(self, height: int, width: int) -> tuple[float, float, float, float]:
        """The part of the image that is shown (left, top, right, bottom).

        Resizing just this box gives the pixels of "short side to `size`, then centre crop", and a 1×1,000,000
        image needs no gigabytes on the way.

        >>> Framing(50).box(100, 200)
        (50.0, 0.0, 150.0, 100.0)
        """
        if self.resize == "squash":
            return 0.0, 0.0, float(width), float(height)
        size, short = self.size, min(height, width)
        resized_width = size if width == short else int(size * width / short)
        resized_height = size if height == short else int(size * height / short)
        left, top = round((resized_width - size) / 2), round((resized_height - size) / 2)
        across, down = width / resized_width, height / resized_height
        right, bottom = (left + size) * across, (top + size) * down
        return left * across, top * down, min(float(width), right), min(float(height), bottom)
