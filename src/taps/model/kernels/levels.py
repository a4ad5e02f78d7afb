"""8-bit pixels to what the vision tower takes, in one pass by a table: a Triton kernel, for CUDA.

Apart, conversion, scaling and rounding read and write the same pixels five times, mostly as 32-bit numbers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _look_up_levels(pixels, table, out, plane, channels, block: tl.constexpr):  # type: ignore[no-untyped-def]
    which = tl.program_id(0)
    place = tl.program_id(1) * block + tl.arange(0, block)
    inside = place < plane
    at = which.to(tl.int64) * plane + place
    level = tl.load(pixels + at, mask=inside, other=0).to(tl.int32)
    value = tl.load(table + which % channels * 256 + level, mask=inside, other=0.0)
    tl.store(out + at, value, mask=inside)


def fused_levels(pixels: Tensor, table: Tensor) -> Tensor:
    """Each pixel's entry in its channel's row of the table.

    Args:
        pixels: 0..255 [batch, channels, height, width], uint8.
        table: [channels, 256].
    """
    pixels = pixels.contiguous()
    out = torch.empty_like(pixels, dtype=table.dtype)
    if pixels.numel():
        plane = pixels.shape[-1] * pixels.shape[-2]
        grid = (pixels.numel() // plane, triton.cdiv(plane, BLOCK))
        _look_up_levels[grid](pixels, table, out, plane, len(table), block=BLOCK, num_warps=8)
    return out
