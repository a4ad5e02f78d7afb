"""Views by torch: crop by crop on a CPU; all at once on a device, by one kernel or as matrix products.

All use Pillow's definition of an antialiased resize, so they differ from it by rounding alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from taps.model.images.geometry import Boxes, Flips, Framing
from taps.model.kernels.verify import require_agreement, tried_once
from taps.types import FloatArray, PixelArray

FusedViews = Callable[[Sequence[PixelArray], NDArray[np.float64], int, torch.device], Tensor]

CHUNK_ELEMENTS = 1 << 26
"""Views are made in groups, so that weights and half-resized images stay under about this many numbers."""
MIDDLE = 128
"""Taken off the pixels during the products: half precision is finest around zero."""
FAR = 1e6
"""Beyond the reach of every filter, in pixels."""
LONGEST_SIDE = 10_000
"""Beyond it the products' weights are mostly zeros; the CPU is the better place."""


def cpu_views(image: PixelArray, boxes: Boxes, flips: Flips, framing: Framing) -> Tensor:
    """View 0 (by Pillow), then crop by crop: [1 + count, 3, size, size], uint8, channels last in memory."""
    upright = torch.from_numpy(image)
    mirrored = upright.flip(1) if flips.any() else upright
    total, size = image.shape[1], framing.size
    views = [framing.view(image)[None]]
    for (top, left, height, width), flip in zip(boxes.tolist(), flips.tolist(), strict=True):
        source, left = (mirrored, total - left - width) if flip else (upright, left)
        # A compact copy of the crop is what torch's fast uint8 kernel asks for.
        crop = source[top : top + height, left : left + width].contiguous().permute(2, 0, 1)[None]
        views.append(interpolate(crop, size=(size, size), mode="bilinear", antialias=True))
    return torch.cat(views)


def device_views(
    images: Sequence[PixelArray], boxes: Boxes, flips: Flips, framing: Framing, device: torch.device
) -> list[Tensor]:
    """View 0 and all crops of each image on an accelerator, by its fastest way; uint8.

    Images are H×W×3 and contiguous; boxes [images, count, 4], flips [images, count].
    """
    kernel = views_kernel(framing.size, device) if device.type == "cuda" else None
    if kernel is not None:
        sizes = [image.shape[:2] for image in images]
        return list(kernel(images, view_plan(sizes, boxes, flips, framing), framing.size, device))
    dtype = torch.float16 if device.type == "cuda" else torch.float32

    def products(image: PixelArray, boxes: Boxes, flips: Flips) -> Tensor:
        if max(image.shape) > LONGEST_SIDE:
            return cpu_views(image, boxes, flips, framing).to(device)
        return batched_views(image, boxes, flips, framing, device, dtype)

    return list(map(products, images, boxes, flips))


@tried_once("Views are made by matrix products")
def views_kernel(size: int, device: torch.device) -> FusedViews:
    """The kernel, compiled for and tried with views of this size on this device."""
    from taps.model.kernels.views import fused_views

    image = np.random.default_rng(0).integers(0, 256, (2 * size + 5, size + 3, 3), dtype=np.uint8)
    boxes = np.array([[0, 0, 2 * size + 5, size + 3], [3, 1, size, size // 2 + 1], [0, 0, 1, 1]])
    # And the same on its side, so that there are two images of two widths.
    images = image, np.ascontiguousarray(image.transpose(1, 0, 2))
    boxes, flips = np.stack([boxes, boxes[:, [1, 0, 3, 2]]]), np.array([[True, False, True]] * 2)
    framing = Framing(size)

    def fused() -> Tensor:
        plan = view_plan([each.shape[:2] for each in images], boxes, flips, framing)
        return fused_views(images, plan, size, device)

    def plain() -> Tensor:
        each = zip(images, boxes, flips, strict=True)
        return torch.stack([batched_views(*one, framing, device, torch.float32) for one in each])

    require_agreement(fused, plain, [], same_picture)
    return fused_views


def same_picture(mine: Tensor, theirs: Tensor) -> bool:
    """Whether pixels differ by rounding alone: both ways round twice, and a half may fall to either side."""
    off = (mine.int() - theirs.int()).abs()
    return int(off.max()) <= 2 and float(off.float().mean()) <= 0.2


def view_plan(
    sizes: Sequence[tuple[int, ...]], boxes: Boxes, flips: Flips, framing: Framing
) -> NDArray[np.float64]:
    """Where each view lies, view 0 first [images, 1 + count, 10].

    The columns are left, top, right and bottom of what is shown, whether it is mirrored, whether pixels
    beyond its edges count (as in view 0), whether the filter is cubic, width and height of the image, and a
    last one that is left to the kernel.
    """
    plan = np.zeros((len(sizes), boxes.shape[1] + 1, 10))
    plan[:, 0, :4] = [framing.box(*size) for size in sizes]
    plan[:, 0, 5:7] = 1, framing.cubic
    plan[:, :, 7:9] = np.array(sizes)[:, None, ::-1]
    crops = plan[:, 1:]
    crops[..., :2] = boxes[..., 1::-1]
    crops[..., 2:4] = crops[..., :2] + boxes[..., :1:-1]
    crops[..., 4] = flips
    return plan


def batched_views(
    image: PixelArray,
    boxes: Boxes,
    flips: Flips,
    framing: Framing,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """View 0 and all crops by two batched matrix products: [1 + count, 3, size, size], uint8.

    Nothing in here waits for the device: all sizes are known beforehand. Products in half precision cost a
    few hundredths of a grey level.
    """
    (height, width), size = image.shape[:2], framing.size
    plan = _send(torch.from_numpy(_filter_plan(image, boxes, flips, framing)), device)
    # Flipping the top bit of a byte and reading it as signed takes 128 off.
    centred = _send(torch.from_numpy((image ^ MIDDLE).view(np.int8)), device)
    tall = _padded(height)
    pixels = torch.zeros(width, 3, tall, dtype=dtype, device=device)
    pixels[:, :, :height] = centred.permute(1, 2, 0)
    pixels = pixels.view(width, 3 * tall)
    group = max(1, CHUNK_ELEMENTS // (size * (3 * height + 6 * max(height, width))))
    parts = [
        _resize(pixels, plan[:, start : start + group], tall, width, cubic_first=start == 0 and framing.cubic)
        for start in range(0, plan.shape[1], group)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _padded(length: int) -> int:
    """The next multiple of 8: matrix units are fast on rows that begin at whole 16 bytes."""
    return -(-length // 8) * 8


def _send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to the device; by way of pinned memory the host need not wait for it."""
    if device.type != "cuda":
        return tensor.to(device)
    return torch.empty_like(tensor, pin_memory=True).copy_(tensor).to(device, non_blocking=True)


def _filter_plan(image: PixelArray, boxes: Boxes, flips: Flips, framing: Framing) -> FloatArray:
    """Filter centres of each output pixel, [2 axes, 1 + count, 3 + size], float32, for the device.

    The first three columns are the first pixel a view may read, how many, and one over the filter's width;
    then come the centres of the output pixels, counted from that first pixel in units of the filter's width.
    Made by numpy, whose small operations cost the least.
    """
    plan = view_plan([image.shape[:2]], boxes[None], flips[None], framing)[0].T.copy()
    begin, end, beyond = plan[:2], plan[2:4], plan[5] > 0
    low, high = np.where(beyond, 0, begin), np.where(beyond, plan[7:9], end)
    scale = (end - begin) / framing.size
    centre = (begin - low)[:, :, None] + (np.arange(framing.size) + 0.5) * scale[:, :, None]
    mirrored = plan[4] > 0
    centre[0, mirrored] = centre[0, mirrored, ::-1]
    shrink = 1 / np.maximum(scale, 1)
    columns = np.stack([low, high - low, shrink], axis=2)
    return np.concatenate([columns, centre * shrink[:, :, None]], axis=2, dtype=np.float32)


def _resize(pixels: Tensor, plan: Tensor, height: int, width: int, *, cubic_first: bool) -> Tensor:
    count, size = plan.shape[1], plan.shape[2] - 3
    across, down = _weights(plan, _padded(max(height, width)), pixels.dtype, cubic_first)
    # Pillow, too, resizes rows first and rounds to 8 bits in between.
    rows = _round(across.view(count * size, -1)[:, :width] @ pixels)
    views = rows.view(count, size * 3, height) @ down[:, :, :height].transpose(1, 2)
    views = _round(views).add_(MIDDLE).to(torch.uint8)
    return views.view(count, size, 3, size).permute(0, 2, 3, 1).contiguous()


def _round(values: Tensor) -> Tensor:
    """Round to 8 bits in place, halves upwards as Pillow does (enlarging by two makes many of them)."""
    return values.add_(0.5).floor_().clamp_(-MIDDLE, 255 - MIDDLE)


def _weights(plan: Tensor, length: int, dtype: torch.dtype, cubic_first: bool) -> Tensor:
    """Weight of each input pixel in each output pixel, [2, count, size, length]; rows sum to one."""
    low, extent, shrink, centre = plan[..., 0:1], plan[..., 1:2], plan[..., 2:3], plan[..., 3:]
    # Places are counted from the box's edge: small numbers keep float32 exact. Those outside go far away.
    place = torch.arange(0.5, length, device=plan.device) - low
    place = torch.where((place > 0) & (place < extent), place * shrink, FAR)
    distance = (place[:, :, None, :] - centre[..., None]).abs_()
    weights = (1 - distance).clamp_(min=0)
    if cubic_first:
        weights[:, 0] = _cubic(distance[:, 0])
    total = weights.sum(dim=3, keepdim=True)
    return torch.div(weights, total, out=torch.empty_like(weights, dtype=dtype))


def _cubic(distance: Tensor) -> Tensor:
    """Keys' cubic with a = −½, as in Pillow; without branches, since launches cost the most here."""
    inner, outer = (1 - distance), (2 - distance).clamp_(min=0)
    near = inner.clamp(min=0)
    return (outer * outer).mul_(inner).mul_(0.5).addcmul_(near * near, 2 * distance - 1)
