"""AdamW on one tensor in one pass: a Triton kernel, for CUDA; the formula of `taps.learning.optimiser`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _adamw(  # type: ignore[no-untyped-def]
    value, gradient, first, second, corrections, taken, new_value, new_first, new_second, total,
    beta_1, rest_1, beta_2, rest_2, keep, lr, eps, block: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < total
    old, g = tl.load(value + at, mask=inside, other=0.0), tl.load(gradient + at, mask=inside, other=0.0)
    old_mean = tl.load(first + at, mask=inside, other=0.0)
    old_square = tl.load(second + at, mask=inside, other=0.0)
    mean = beta_1 * old_mean + rest_1 * g
    square = beta_2 * old_square + rest_2 * g * g
    for_mean = tl.load(corrections).to(tl.float32)
    for_square = tl.load(corrections + 1).to(tl.float32)
    length = tl.sqrt_rn(tl.div_rn(square, for_square)) + eps
    moved = old * keep - lr * tl.div_rn(tl.div_rn(mean, for_mean), length)
    valid = tl.load(taken) != 0
    tl.store(new_value + at, tl.where(valid, moved, old), mask=inside)
    tl.store(new_first + at, tl.where(valid, mean, old_mean), mask=inside)
    tl.store(new_second + at, tl.where(valid, square, old_square), mask=inside)


def fused_adamw(
    value: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    corrections: Tensor,
    taken: Tensor,
    *,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """New value and moments of one float32 tensor; see `taps.learning.optimiser.plain_adamw`."""
    value, gradient, first, second = (each.contiguous() for each in (value, gradient, first, second))
    new = torch.empty_like(value), torch.empty_like(value), torch.empty_like(value)
    _adamw[(triton.cdiv(value.numel(), BLOCK),)](
        value, gradient, first, second, corrections, taken.view(torch.uint8), *new, value.numel(),
        betas[0], 1 - betas[0], betas[1], 1 - betas[1], 1 - lr * weight_decay, lr, eps, block=BLOCK,
    )  # fmt: skip
    return new
