"""Small operations of the towers that torch has no fused kernel for, each with its gradient."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.clip.layout import TextLayout

log = logging.getLogger("taps")

# Compiled at first use; half precision is computed in float.
QUICK_GELU = "template <typename T> T quick_gelu(T x) { return x / (T(1) + exp(T(-1.702) * x)); }"
QUICK_GELU_BACKWARD = """template <typename T> T quick_gelu_backward(T g, T x) {
    T s = T(1) / (T(1) + exp(T(-1.702) * x));
    return g * (s + T(1.702) * x * s * (T(1) - s));
}"""


class QuickGelu(torch.autograd.Function):
    """x · σ(1.702 x); one kernel each way on CUDA."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        kernels = _cuda_kernels() if x.is_cuda else None
        return kernels[0](x) if kernels else torch.sigmoid(1.702 * x).mul_(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        kernels = _cuda_kernels() if x.is_cuda else None
        if kernels:
            return kernels[1](gradient, x)
        gate: Tensor = torch.sigmoid(1.702 * x)
        result: Tensor = gradient * (gate + 1.702 * x * gate * (1 - gate))
        return result


def quick_gelu(x: Tensor) -> Tensor:
    """OpenAI's approximation of GELU."""
    return QuickGelu.apply(x)  # type: ignore[no-any-return, no-untyped-call]


ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "quick_gelu": quick_gelu}


@functools.cache
def _cuda_kernels() -> tuple[Callable[..., Tensor], Callable[..., Tensor]] | None:
    try:
        from torch.cuda.jiterator import _create_jit_fn

        kernels = _create_jit_fn(QUICK_GELU), _create_jit_fn(QUICK_GELU_BACKWARD)
        probe = torch.ones(1, device="cuda", dtype=torch.bfloat16)
        kernels[0](probe), kernels[1](probe, probe)
    except Exception as error:
        log.info("QuickGELU runs unfused: its kernel cannot be compiled here (%s).", error)
        return None
    return kernels


class Spread(torch.autograd.Function):
    """Packed tokens [P + T, …] → whole texts [K, P + S, …]: a gather, no atomic additions on the way back."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, layout: TextLayout) -> Tensor:
        ctx.layout = layout
        rows = tokens.index_select(0, layout.spread.flatten())
        return rows.view(*layout.spread.shape, tokens.shape[-1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        layout, shared = ctx.layout, len(ctx.layout.prefix)
        packed = gradient.flatten(0, 1).index_select(0, layout.collect)
        packed[:shared] = gradient[:, :shared].sum(dim=0)
        return packed, None


class Collect(torch.autograd.Function):
    """Rows by their places, each taken at most once."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor) -> Tensor:
        ctx.places, ctx.shape = places, rows.shape
        return rows.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.new_zeros(ctx.shape).index_copy_(0, ctx.places, gradient), None


def spread(tokens: Tensor, layout: TextLayout) -> Tensor:
    """The shared prefix and the packed tokens as whole texts, the prefix repeated in each."""
    return Spread.apply(tokens, layout)  # type: ignore[no-any-return, no-untyped-call]


def collect(rows: Tensor, places: Tensor) -> Tensor:
    """Rows at distinct places."""
    return Collect.apply(rows, places)  # type: ignore[no-any-return, no-untyped-call]
