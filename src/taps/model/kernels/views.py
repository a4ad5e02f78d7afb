"""All views of one image or of several by one Triton kernel, for CUDA: one upload, one launch.

Every output pixel sums the few input pixels its filter reaches. Rows are resized first and rounded to 8 bits
before columns are, as Pillow does it; places are computed in double precision.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from taps.types import PixelArray


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _filter(distance, cubic):  # type: ignore[no-untyped-def]
    """Triangle, or Keys' cubic with a = −½."""
    inner = 1.0 - distance
    near = tl.maximum(inner, 0.0)
    outer = tl.maximum(2.0 - distance, 0.0)
    keys = 0.5 * outer * outer * inner + near * near * (2.0 * distance - 1.0)
    return tl.where(cubic, keys, near)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _level(value):  # type: ignore[no-untyped-def]
    """To a whole grey level, halves upwards: also those that rounding left just below."""
    return tl.minimum(tl.maximum(tl.floor(value + 0.5001), 0.0), 255.0)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _views(sent, out, size, columns: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    row, view = tl.program_id(0), tl.program_id(1)
    at = sent.to(tl.pointer_type(tl.float64)) + view * columns
    begin_x, begin_y, end_x, end_y = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    flip, beyond, cubic = tl.load(at + 4) > 0.5, tl.load(at + 5) > 0.5, tl.load(at + 6) > 0.5
    width = tl.load(at + 7)
    image = sent + tl.load(at + 9).to(tl.int64)
    support = tl.where(cubic, 2.0, 1.0).to(tl.float64)
    scale_x, scale_y = (end_x - begin_x) / size, (end_y - begin_y) / size
    low_x, high_x = tl.where(beyond, 0.0, begin_x), tl.where(beyond, width, end_x)
    low_y, high_y = tl.where(beyond, 0.0, begin_y), tl.where(beyond, tl.load(at + 8), end_y)

    column = tl.arange(0, block)
    inside = column < size
    source = tl.where(flip, size - 1 - column, column)
    stretch_x = tl.maximum(scale_x, 1.0)
    centre_x = begin_x + (source.to(tl.float64) + 0.5) * scale_x
    first_x = tl.maximum(tl.floor(centre_x - support * stretch_x), low_x)
    # From here on numbers are small and float32 is exact enough.
    shrink_x = (1.0 / stretch_x).to(tl.float32)
    offset_x = ((first_x + 0.5 - centre_x) / stretch_x).to(tl.float32)
    left = first_x.to(tl.int32)
    end = high_x.to(tl.int32)
    taps = tl.ceil(2.0 * support * stretch_x).to(tl.int32) + 1

    stretch_y = tl.maximum(scale_y, 1.0)
    centre_y = begin_y + (row.to(tl.float64) + 0.5) * scale_y
    first_y = tl.maximum(tl.floor(centre_y - support * stretch_y), low_y)
    shrink_y = (1.0 / stretch_y).to(tl.float32)
    offset_y = ((first_y + 0.5 - centre_y) / stretch_y).to(tl.float32)
    top = first_y.to(tl.int32)
    lines = tl.minimum(tl.ceil(centre_y + support * stretch_y), high_y).to(tl.int32) - top

    stride = width.to(tl.int32) * 3
    red = tl.zeros((block,), tl.float32)
    green = tl.zeros((block,), tl.float32)
    blue = tl.zeros((block,), tl.float32)
    total_y = shrink_y * 0.0
    for line in range(0, lines):
        weight_y = _filter(tl.abs(offset_y + line * shrink_y), cubic)
        begin = image + (top + line) * stride
        line_red = tl.zeros((block,), tl.float32)
        line_green = tl.zeros((block,), tl.float32)
        line_blue = tl.zeros((block,), tl.float32)
        total_x = tl.zeros((block,), tl.float32)
        for tap in range(0, taps):
            x = left + tap
            there = inside & (x < end)
            weight = tl.where(there, _filter(tl.abs(offset_x + tap * shrink_x), cubic), 0.0)
            pixel = begin + x * 3
            line_red += weight * tl.load(pixel, mask=there, other=0).to(tl.float32)
            line_green += weight * tl.load(pixel + 1, mask=there, other=0).to(tl.float32)
            line_blue += weight * tl.load(pixel + 2, mask=there, other=0).to(tl.float32)
            total_x += weight
        total_x = tl.where(inside, total_x, 1.0)
        red += weight_y * _level(line_red / total_x)
        green += weight_y * _level(line_green / total_x)
        blue += weight_y * _level(line_blue / total_x)
        total_y += weight_y
    plane = size * size
    to = out + view.to(tl.int64) * (3 * plane) + row * size + column
    tl.store(to, _level(red / total_y).to(tl.uint8), mask=inside)
    tl.store(to + plane, _level(green / total_y).to(tl.uint8), mask=inside)
    tl.store(to + 2 * plane, _level(blue / total_y).to(tl.uint8), mask=inside)


def fused_views(
    images: Sequence[PixelArray], plan: NDArray[np.float64], size: int, device: torch.device
) -> Tensor:
    """View 0 and all crops of each: [images, 1 + count, 3, size, size], uint8. The host waits for nothing.

    Args:
        images: Pixels H×W×3, contiguous.
        plan: Where each view lies, see `taps.model.images.tensor.view_plan` [images, 1 + count, 10].
        size: Side of a view.
        device: A CUDA device (or the CPU, under Triton's interpreter).
    """
    ends = list(itertools.accumulate([plan.nbytes, *(image.nbytes for image in images)]))
    plan[..., 9] = np.array(ends[:-1])[:, None]
    # Plan and pixels travel together, from pinned memory that torch keeps until the copy is done. Filled by
    # numpy: a copy by torch would wake all its threads for half a megabyte.
    staged = torch.empty(ends[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    np.concatenate(
        [plan.view(np.uint8).reshape(-1), *(image.reshape(-1) for image in images)], out=staged.numpy()
    )
    sent = staged.to(device, non_blocking=True)
    out = torch.empty(*plan.shape[:2], 3, size, size, dtype=torch.uint8, device=device)
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        _views[size, plan.shape[0] * plan.shape[1]](
            sent, out, size, columns=plan.shape[2], block=triton.next_power_of_2(size), num_warps=2
        )
    return out
