"""Views by Pillow, one after the other: the reference the batched backend is measured against."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from taps.images.geometry import Boxes, Flips, Framing
from taps.types import PixelArray


def whole_view(image: PixelArray, framing: Framing) -> Tensor:
    """View 0, [3, size, size]."""
    height, width = image.shape[:2]
    if height == width == framing.size:
        return torch.from_numpy(image).permute(2, 0, 1)
    filter = Image.Resampling.BICUBIC if framing.cubic else Image.Resampling.BILINEAR
    box = framing.box(height, width)
    view = Image.fromarray(image).resize((framing.size, framing.size), filter, box=box)
    return torch.from_numpy(np.array(view)).permute(2, 0, 1)


def pillow_views(image: PixelArray, boxes: Boxes, flips: Flips, framing: Framing) -> Tensor:
    """View 0, then each box cut, resized (bilinear) and flipped: [1 + count, 3, size, size], uint8."""
    whole, size = Image.fromarray(image), framing.size
    crops = np.empty((len(boxes), size, size, 3), dtype=np.uint8)
    for view, (top, left, height, width), flip in zip(crops, boxes.tolist(), flips.tolist(), strict=True):
        crop = whole.crop((left, top, left + width, top + height))
        pixels = np.asarray(crop.resize((size, size), Image.Resampling.BILINEAR))
        view[:] = pixels[:, ::-1] if flip else pixels
    return torch.cat([whole_view(image, framing)[None], torch.from_numpy(crops).permute(0, 3, 1, 2)])
