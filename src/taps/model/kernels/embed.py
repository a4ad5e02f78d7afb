"""The input of a vision tower's first block in one pass: a Triton kernel, for CUDA.

Class token, patches at their places, prompts, and two layer norms. Apart they read and write the same tokens
six times. Nothing is kept for a way back.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _norm(value, inside, column, weight, bias, eps, width: tl.constexpr):  # type: ignore[no-untyped-def]
    mean = tl.sum(value, 0) / width
    value = tl.where(inside, value - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / width + eps)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    return value * scale * w + b


@triton.jit(do_not_specialize=["count", "prompts", "step"])  # type: ignore[untyped-decorator, unused-ignore]
def _embed(  # type: ignore[no-untyped-def]
    patches, first, positions, fresh, weight_1, bias_1, weight_2, bias_2, out, normed, count, prompts, step,
    eps_1, eps_2, width: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0), tl.arange(0, block)
    inside = column < width
    length = 1 + count + prompts
    image, place = (row // length).to(tl.int64), row % length
    if place == 0:
        value = tl.load(first + column, mask=inside, other=0.0).to(tl.float32)
    elif place <= count:
        at = (image * count + place - 1) * width + column
        value = tl.load(patches + at, mask=inside, other=0.0).to(tl.float32)
    else:
        at = image * step + (place - 1 - count) * width + column
        value = tl.load(fresh + at, mask=inside, other=0.0).to(tl.float32)
    if place <= count:
        value += tl.load(positions + place * width + column, mask=inside, other=0.0).to(tl.float32)
    # Rounded where the separate passes round.
    kept = value.to(out.dtype.element_ty).to(tl.float32)
    kept = _norm(kept, inside, column, weight_1, bias_1, eps_1, width).to(out.dtype.element_ty)
    to = row.to(tl.int64) * width + column
    tl.store(out + to, kept, mask=inside)
    value = _norm(kept.to(tl.float32), inside, column, weight_2, bias_2, eps_2, width)
    tl.store(normed + to, value.to(normed.dtype.element_ty), mask=inside)


def fused_embed(
    patches: Tensor,
    first: Tensor,
    positions: Tensor,
    fresh: Tensor | None,
    before: nn.LayerNorm,
    after: nn.LayerNorm,
) -> tuple[Tensor, Tensor]:
    """See `taps.model.clip.ops.plain_embed`."""
    batch, count, width = patches.shape
    prompts = 0 if fresh is None else fresh.shape[-2]
    out = patches.new_empty(batch, 1 + count + prompts, width)
    normed = torch.empty_like(out)
    block = triton.next_power_of_2(width)
    step = 0 if fresh is None or fresh.ndim == 2 else prompts * width
    _embed[(batch * out.shape[1],)](
        patches.contiguous(), first, positions, patches if fresh is None else fresh.contiguous(),
        before.weight, before.bias, after.weight, after.bias, out, normed, count, prompts, step, before.eps,
        after.eps, width=width, block=block, num_warps=min(8, max(1, block // 256)),
    )  # fmt: skip
    return out, normed
