"""QuickGELU, x · σ(1.702 x), as one elementwise CUDA kernel each way, in C++ compiled at first use.

A third one, in Triton, is the way back of many gradients through one forward: each number of the forward is
read for every gradient, which the C++ kernel does four times slower.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.cuda.jiterator import _create_jit_fn

# Half precision is computed in float.
FORWARD = "template <typename T> T quick_gelu(T x) { return x / (T(1) + exp(T(-1.702) * x)); }"
BACKWARD = """template <typename T> T quick_gelu_backward(T g, T x) {
    T s = T(1) / (T(1) + exp(T(-1.702) * x));
    return g * (s + T(1.702) * x * s * (T(1) - s));
}"""


def compile_quick_gelu() -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]:
    """The kernels: x → y, and (gradient on y, x) → gradient on x."""
    return _create_jit_fn(FORWARD), _create_jit_fn(BACKWARD)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _shared_backward(gradient, x, out, total, size, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < total
    value = tl.load(x + at % size, mask=inside, other=0.0).to(tl.float32)
    gate = 1.0 / (1.0 + tl.exp(-1.702 * value))
    slope = gate + 1.702 * value * gate * (1.0 - gate)
    given = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (given * slope).to(out.dtype.element_ty), mask=inside)


def shared_quick_gelu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    """Gradients [B, ...] of as many results of one x [...]."""
    gradient, x = gradient.contiguous(), x.contiguous()
    out = torch.empty_like(gradient)
    block = 4096
    grid = (triton.cdiv(gradient.numel(), block),)
    _shared_backward[grid](gradient, x, out, gradient.numel(), x.numel(), block=block, num_warps=8)
    return out
