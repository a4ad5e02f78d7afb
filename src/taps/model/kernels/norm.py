"""Residual addition, prompt insertion and layer norm in one pass: one Triton kernel each way, for CUDA.

Apart they read and write the same tokens five times. The frozen weight and bias get no gradients.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from taps.model.kernels.many import way_back


@triton.jit(  # type: ignore[untyped-decorator, unused-ignore]
    do_not_specialize=["period", "first", "count", "step"], do_not_specialize_on_alignment=["means", "scales"]
)
def _add_norm_forward(  # type: ignore[no-untyped-def]
    x, delta, fresh, weight, bias, total, normed, means, scales, period, first, count, step, eps,
    width: tl.constexpr, block: tl.constexpr, replaced: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0), tl.arange(0, block)
    inside = column < width
    at = row.to(tl.int64) * width + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
    if replaced:
        place = row % period - first + tl.zeros((block,), tl.int32)
        new = inside & (place >= 0) & (place < count)
        given = tl.load(fresh + row // period * step + place * width + column, mask=new, other=0.0)
        value = tl.where(new, given.to(tl.float32), value)
    kept = value.to(total.dtype.element_ty)
    tl.store(total + at, kept, mask=inside)
    # The norm is that of the rounded sum, as if it had been read back.
    value = kept.to(tl.float32)
    mean = tl.sum(value, 0) / width
    value = tl.where(inside, value - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / width + eps)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + at, (value * scale * w + b).to(normed.dtype.element_ty), mask=inside)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)


@triton.jit(  # type: ignore[untyped-decorator, unused-ignore]
    do_not_specialize=["rows", "period", "first", "count"], do_not_specialize_on_alignment=["means", "scales"]
)
def _add_norm_backward(  # type: ignore[no-untyped-def]
    by_total, by_normed, total, weight, means, scales, by_sum, by_fresh, rows, period, first, count,
    width: tl.constexpr, block: tl.constexpr, replaced: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0), tl.arange(0, block)
    inside = column < width
    at = row.to(tl.int64) * width + column
    kept = row % rows  # of the forward, which may have been one for several gradients
    mean, scale = tl.load(means + kept), tl.load(scales + kept)
    upper = tl.load(by_normed + at, mask=inside, other=0.0).to(tl.float32)
    upper *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(total + kept.to(tl.int64) * width + column, mask=inside, other=0.0).to(tl.float32)
    value = tl.where(inside, (value - mean) * scale, 0.0)
    along, level = tl.sum(upper * value, 0) / width, tl.sum(upper, 0) / width
    slope = (upper - level - value * along) * scale
    slope += tl.load(by_total + at, mask=inside, other=0.0).to(tl.float32)
    if replaced:  # what stood here before has no part in the result
        place = row % period - first + tl.zeros((block,), tl.int32)
        new = inside & (place >= 0) & (place < count)
        to = by_fresh + (row // period * count + place) * width + column
        tl.store(to, slope, mask=new)
        slope = tl.where(new, 0.0, slope)
    tl.store(by_sum + at, slope.to(by_sum.dtype.element_ty), mask=inside)


class AddNorm(torch.autograd.Function):
    """x + delta with some tokens replaced, and its layer norm; see `taps.model.clip.ops.add_norm`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        delta: Tensor,
        fresh: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        first: int,
    ) -> tuple[Tensor, Tensor]:
        x, delta = x.contiguous(), delta.contiguous()
        width, period = x.shape[-1], x.shape[-2]
        rows = x.numel() // width
        total, normed = torch.empty_like(x), torch.empty_like(x)
        means, scales = torch.empty(2, rows, dtype=torch.float32, device=x.device)
        ctx.first, ctx.count = first, 0 if fresh is None else fresh.shape[-2]
        ctx.each = fresh is not None and fresh.ndim > 2  # every sequence has tokens of its own
        ctx.save_for_backward(total, weight, means, scales)
        _add_norm_forward[(rows,)](
            x, delta, x if fresh is None else fresh.contiguous(), weight, bias, total, normed, means, scales,
            period, first, ctx.count, ctx.each * ctx.count * width, eps, **_sizes(width, ctx.count),
        )  # fmt: skip
        return total, normed

    @staticmethod
    def backward(ctx: Any, by_total: Tensor, by_normed: Tensor) -> tuple[Tensor | None, ...]:
        saved: tuple[Tensor, Tensor, Tensor, Tensor] = ctx.saved_tensors
        by_sum, by_fresh = add_norm_backward(by_total, by_normed, *saved, ctx.first, ctx.count)
        if by_fresh is not None and not ctx.each and by_fresh.ndim > 2:
            by_fresh = by_fresh.flatten(0, -3).sum(dim=0)
        to_fresh = None if by_fresh is None else by_fresh.to(by_sum.dtype)
        return by_sum, by_sum, to_fresh, None, None, None, None


@way_back(2)
def add_norm_backward(
    by_total: Tensor,
    by_normed: Tensor,
    total: Tensor,
    weight: Tensor,
    means: Tensor,
    scales: Tensor,
    first: int,
    count: int,
) -> tuple[Tensor, Tensor | None]:
    """The gradient on either summand, and of each sequence on the tokens that were put in (float32)."""
    width, period = total.shape[-1], total.shape[-2]
    by_sum = torch.empty(by_total.shape, dtype=total.dtype, device=total.device)
    by_fresh = torch.empty(
        *by_total.shape[:-2], max(count, 1), width, dtype=torch.float32, device=total.device
    )
    _add_norm_backward[(by_total.numel() // width,)](
        by_total.contiguous(), by_normed.contiguous(), total, weight, means, scales, by_sum, by_fresh,
        total.numel() // width, period, first, count, **_sizes(width, count),
    )  # fmt: skip
    return by_sum, by_fresh if count else None


def _sizes(width: int, count: int) -> dict[str, Any]:
    block = triton.next_power_of_2(width)
    warps = min(8, max(1, block // 256))  # 16 bytes a thread in half precision
    return {"width": width, "block": block, "replaced": count > 0, "num_warps": warps}


def fused_add_norm(
    x: Tensor, delta: Tensor, fresh: Tensor | None, weight: Tensor, bias: Tensor, eps: float, first: int
) -> tuple[Tensor, Tensor]:
    """See `AddNorm`."""
    return AddNorm.apply(x, delta, fresh, weight, bias, eps, first)  # type: ignore[no-any-return, no-untyped-call]
