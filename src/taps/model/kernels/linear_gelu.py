"""A product and its QuickGELU in one Triton kernel, for Hopper GPUs: the hidden layer is written once.

Apart, the product writes it, and QuickGELU reads and writes it again. Here the result is rounded once, at the
end. QuickGELU is taken as x/2 · (1 + tanh(0.851 x)): the hardware's tanh is one instruction, while for an
exponential and a division the matrix units would wait longer at the end of each tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

ROWS, COLUMNS, DEPTH = 128, 256, 64
"""Of a tile of the result, and of what is read of both factors in one go."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _place(tile, tall, wide, group: tl.constexpr):  # type: ignore[no-untyped-def]
    """Row and column of a tile: a few rows of tiles, column by column, then the next few."""
    first = tile // (group * wide) * group
    height = tl.minimum(tall - first, group)
    return first + tile % height, tile % (group * wide) // height


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _tanh(x):  # type: ignore[no-untyped-def]
    """Off by at most 2⁻¹¹, and QuickGELU by x · 2⁻¹²."""
    return tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit(do_not_specialize=["total", "programs"])  # type: ignore[untyped-decorator, unused-ignore]
def _linear_gelu(  # type: ignore[no-untyped-def]
    x, weight, bias, out, total, wide, inner, programs,
    rows: tl.constexpr, columns: tl.constexpr, depth: tl.constexpr, group: tl.constexpr,
):  # fmt: skip
    tall = tl.cdiv(total, rows)
    for tile in tl.range(tl.program_id(0), tall * wide, programs, flatten=True):
        row, column = _place(tile, tall, wide, group)
        made = tl.zeros((rows, columns), tl.float32)
        for step in range(inner):
            a = x.load([row * rows, step * depth])
            b = weight.load([column * columns, step * depth])
            made = tl.dot(a, b.T, made)
        half = 0.5 * (made + tl.load(bias + column * columns + tl.arange(0, columns)).to(tl.float32)[None, :])
        out.store([row * rows, column * columns], (half + half * _tanh(1.702 * half)).to(x.dtype))


def fused_linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """QuickGELU of x · weightᵀ + bias; nothing is kept for a way back.

    Args:
        x: [..., inner].
        weight: [outer, inner], multiples of `COLUMNS` and `DEPTH`.
        bias: [outer].
    """
    outer, inner = weight.shape
    flat = x.reshape(-1, inner)
    out = torch.empty(len(flat), outer, dtype=x.dtype, device=x.device)
    wide = outer // COLUMNS
    programs = min(
        triton.cdiv(len(flat), ROWS) * wide, torch.cuda.get_device_properties(x.device).multi_processor_count
    )
    _linear_gelu[(programs,)](
        TensorDescriptor.from_tensor(flat, [ROWS, DEPTH]),
        TensorDescriptor.from_tensor(weight, [COLUMNS, DEPTH]),
        bias, TensorDescriptor.from_tensor(out, [ROWS, COLUMNS]), len(flat), wide, inner // DEPTH, programs,
        rows=ROWS, columns=COLUMNS, depth=DEPTH, group=4, num_warps=8, num_stages=3,
    )  # fmt: skip
    return out.view(*x.shape[:-1], outer)
