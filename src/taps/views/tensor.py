"""Views by torch: crop by crop with its vector kernels on a CPU, all at once as matrix products elsewhere.

Both use Pillow's definition of an antialiased resize, so they differ from it by rounding alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from taps.types import PixelArray
from taps.views.geometry import centre_box
from taps.views.pillow import centre_view

CHUNK_ELEMENTS = 1 << 26
"""Views are made in groups, so that weights and half-resized images stay under about this many numbers."""
LONGEST_SIDE = 10_000
"""Beyond it dense weights are mostly zeros; the CPU is the better place."""


def cpu_views(image: PixelArray, boxes: Tensor, flips: Tensor, size: int) -> Tensor:
    """View 0 (by Pillow), then crop by crop: [1 + count, 3, size, size], uint8, channels last in memory."""
    upright = torch.from_numpy(image)
    mirrored = upright.flip(1)
    total = image.shape[1]
    views = [centre_view(image, size)[None]]
    for (top, left, height, width), flip in zip(boxes.tolist(), flips.tolist(), strict=True):
        source, left = (mirrored, total - left - width) if flip else (upright, left)
        # A compact copy of the crop is what torch's fast uint8 kernel asks for.
        crop = source[top : top + height, left : left + width].contiguous().permute(2, 0, 1)[None]
        views.append(interpolate(crop, size=(size, size), mode="bilinear", antialias=True))
    return torch.cat(views)


def batched_views(
    image: PixelArray, boxes: Tensor, flips: Tensor, size: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """View 0 and all crops by two batched matrix products: [1 + count, 3, size, size], uint8.

    Nothing in here waits for the device: all sizes are known beforehand.

    Args:
        image: Pixels H×W×3.
        boxes: Crops [count, 4] as (top, left, height, width).
        flips: Which crops to mirror, [count].
        size: Side of a view.
        device: Where to compute.
        dtype: Number type of the products; half precision costs a few hundredths of a grey level.
    """
    height, width = image.shape[:2]
    across, down = _axes(height, width, boxes, flips, size)
    plan = _send(torch.stack([across, down]), device)
    pixels = _send(torch.from_numpy(image), device).permute(1, 2, 0).to(dtype)  # [W, 3, H]
    pixels = pixels.reshape(width, 3 * height)
    group = max(1, CHUNK_ELEMENTS // (size * (3 * height + 4 * max(height, width))))
    parts = [
        _resize(pixels, plan[:, start : start + group], height, width, size, cubic_first=start == 0)
        for start in range(0, plan.shape[1], group)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _send(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _axes(height: int, width: int, boxes: Tensor, flips: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Per axis and view (low, length, start, scale, mirrored), [1 + count, 5], float32.

    `low` and `length` bound the pixels a view may read; output i is centred at low + start + (i + ½)·scale.
    """
    left, top, right, bottom = centre_box(height, width, size)
    boxes, flipped, zero = boxes.double(), flips.double(), torch.zeros(len(boxes), dtype=torch.float64)
    across = torch.stack([boxes[:, 1], boxes[:, 3], zero, boxes[:, 3] / size, flipped], dim=1)
    down = torch.stack([boxes[:, 0], boxes[:, 2], zero, boxes[:, 2] / size, zero], dim=1)
    centre_across = torch.tensor([[0, width, left, (right - left) / size, 0]], dtype=torch.float64)
    centre_down = torch.tensor([[0, height, top, (bottom - top) / size, 0]], dtype=torch.float64)
    return torch.cat([centre_across, across]).float(), torch.cat([centre_down, down]).float()


def _resize(pixels: Tensor, plan: Tensor, height: int, width: int, size: int, *, cubic_first: bool) -> Tensor:
    count = plan.shape[1]
    across = _weights(plan[0], width, size, cubic_first).to(pixels.dtype)
    down = _weights(plan[1], height, size, cubic_first).to(pixels.dtype)
    # Pillow, too, resizes rows first and rounds to 8 bits in between.
    rows = _round(across.reshape(count * size, width) @ pixels)
    views = rows.reshape(count, size * 3, height) @ down.transpose(1, 2)
    views = _round(views).to(torch.uint8)
    return views.reshape(count, size, 3, size).permute(0, 2, 3, 1).contiguous()


def _round(values: Tensor) -> Tensor:
    """Round to 8 bits in place, halves upwards as Pillow does (enlarging by two makes many of them)."""
    return values.add_(0.5).floor_().clamp_(0, 255)


def _weights(axis: Tensor, length: int, size: int, cubic_first: bool) -> Tensor:
    """Weight of each input pixel in each output pixel, [count, size, length]; rows sum to one."""
    low, extent, start, scale, mirrored = (column[:, None] for column in axis.unbind(1))
    output = torch.arange(size, device=axis.device)
    output = torch.where(mirrored > 0, size - 1 - output, output) + 0.5
    centre = start + output * scale
    # Places are counted from the box's edge: small numbers keep float32 exact.
    place = torch.arange(length, device=axis.device) + 0.5 - low
    distance = (place[:, None, :] - centre[:, :, None]).abs_() / scale.clamp(min=1)[:, :, None]
    weights = (1 - distance).clamp_(min=0)
    if cubic_first:
        weights[0] = _cubic(distance[0])
    weights *= ((place > 0) & (place < extent))[:, None, :]
    return weights.div_(weights.sum(dim=2, keepdim=True))


def _cubic(distance: Tensor) -> Tensor:
    """Keys' cubic with a = −½, the one Pillow uses."""
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, torch.zeros_like(far)))
