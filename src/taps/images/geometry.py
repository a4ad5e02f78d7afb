"""Where the views lie: crop boxes and flips from one generator, the same for every backend."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from taps.errors import SettingsError

AREA = (0.08, 1.0)
"""Share of the image's area a crop aims at."""
RATIO = (3 / 4, 4 / 3)
"""Width over height of a crop."""
TRIES = 10
"""Shapes drawn per crop before it falls back to the centre."""


def sample_generator(seed: int, step: int) -> torch.Generator:
    """Make the generator of sample number `step`: a stream resumed there sees the same views again.

    >>> first, again = sample_generator(seed=0, step=7), sample_generator(seed=0, step=7)
    >>> torch.equal(torch.rand(2, generator=first), torch.rand(2, generator=again))
    True
    """
    wide = 1 << 64  # SeedSequence takes no negative numbers
    mixed = np.random.SeedSequence([seed % wide, step % wide]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(mixed[0]))


def sample_crops(height: int, width: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw random resized crops: area uniform in `AREA`, ratio log-uniform in `RATIO`, place uniform.

    The first of `TRIES` shapes that fits the image is taken, else the largest allowed central crop.

    Returns:
        Boxes [count, 4], int64, as (top, left, height, width), and flips [count], bool, true half the time.
    """
    draws = torch.rand(count, 2 * TRIES + 3, generator=generator, dtype=torch.float64).numpy()
    area = height * width * (AREA[0] + (AREA[1] - AREA[0]) * draws[:, :TRIES])
    ratio = np.exp(math.log(RATIO[0]) + math.log(RATIO[1] / RATIO[0]) * draws[:, TRIES : 2 * TRIES])
    shapes = np.rint(np.sqrt([area / ratio, area * ratio])).astype(np.int64)  # [2, count, TRIES]
    room = np.array([[height], [width]])
    fits = np.logical_and.reduce((shapes > 0) & (shapes <= room[:, :, None]), axis=0)

    found = np.logical_or.reduce(fits, axis=1)
    shape = shapes[:, np.arange(count), fits.argmax(axis=1)]
    shape = np.where(found, shape, np.reshape(central_crop(height, width), (2, 1)))
    spare = room - shape
    corner = np.where(
        found, (draws[:, 2 * TRIES : 2 * TRIES + 2].T * (spare + 1)).astype(np.int64), spare // 2
    )
    boxes = np.concatenate([corner, shape]).T.copy()
    return torch.from_numpy(boxes), torch.from_numpy(draws[:, -1] < 0.5)


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
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Framing:
    """How view 0 shows an image.

    Attributes:
        size: Side of a view in pixels.
        resize: "shortest" (short side to `size`, centre crop) or "squash" (all of it, out of shape).
        interpolation: By which filter: "bicubic" or "bilinear".
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

    def box(self, height: int, width: int) -> Box:
        """The part of the image that is shown (left, top, right, bottom)."""
        if self.resize == "squash":
            return 0.0, 0.0, float(width), float(height)
        return centre_box(height, width, self.size)

    @property
    def cubic(self) -> bool:
        return self.interpolation == "bicubic"


def centre_box(height: int, width: int, size: int) -> Box:
    """Box (left, top, right, bottom) of the image that "short side to `size`, then centre crop" shows.

    Resizing just this box gives the same pixels, and a 1×1,000,000 image needs no gigabytes on the way.

    >>> centre_box(100, 200, 50)
    (50.0, 0.0, 150.0, 100.0)
    """
    short = min(height, width)
    resized_width = size if width == short else int(size * width / short)
    resized_height = size if height == short else int(size * height / short)
    left, top = round((resized_width - size) / 2), round((resized_height - size) / 2)
    across, down = width / resized_width, height / resized_height
    return (
        left * across,
        top * down,
        min(float(width), (left + size) * across),
        min(float(height), (top + size) * down),
    )
