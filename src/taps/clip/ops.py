"""Small operations of the towers that torch has no fused kernel for, each with its gradient."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.clip.layout import TextLayout, make_layout

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


def collect(rows: Tensor, places: Tensor) -> Tensor:
    """Rows at distinct places."""
    return Collect.apply(rows, places)  # type: ignore[no-any-return, no-untyped-call]


def text_attention(qkv: Tensor, layout: TextLayout, heads: int) -> Tensor:
    """Causal attention of each text over the shared prefix and its own tokens.

    Args:
        qkv: Queries, keys and values of the packed tokens side by side [P + T, 3 · width].
        layout: Which token belongs where.
        heads: Number of heads.

    Returns:
        The packed tokens' results before the output projection [P + T, width].
    """
    if qkv.is_cuda and qkv.dtype != torch.float64 and (fused := _short_attention()) is not None:
        return fused(qkv, layout, heads)
    return plain_text_attention(qkv, layout, heads)


def plain_text_attention(qkv: Tensor, layout: TextLayout, heads: int) -> Tensor:
    """The same by torch's own attention, over whole texts."""
    texts: Tensor = Spread.apply(qkv, layout)  # type: ignore[no-untyped-call]
    parts = texts.chunk(3, dim=-1)
    q, k, v = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in parts)
    seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return collect(seen.transpose(1, 2).flatten(2).flatten(0, 1), layout.collect)


@functools.cache
def _short_attention() -> Callable[[Tensor, TextLayout, int], Tensor] | None:
    """The fused kernel, once it has shown here that it compiles and is right."""
    try:
        from taps.kernels.text_attention import short_attention

        layout = make_layout([[1, 2, 3, 9], [1, 2, 4, 5, 9], [1, 2, 6, 9]]).to("cuda")
        generator = torch.Generator().manual_seed(0)
        qkv = torch.randn(len(layout.collect), 96, generator=generator).cuda().requires_grad_()
        with torch.enable_grad():
            fused, plain = (function(qkv, layout, 2) for function in (short_attention, plain_text_attention))
            slopes = [torch.autograd.grad(out.square().sum(), qkv)[0] for out in (fused, plain)]
        close = functools.partial(torch.allclose, rtol=1e-3, atol=1e-3)
        if not close(fused, plain) or not close(*slopes):
            raise RuntimeError("its results are wrong")
    except Exception as error:
        log.info("Text attention runs unfused: its kernel cannot be used here (%s).", error)
        return None
    return short_attention


def look_up_levels(pixels: Tensor, table: Tensor) -> Tensor:
    """Each 8-bit pixel's entry in its channel's row of a table.

    Args:
        pixels: 0..255 [batch, channels, height, width], uint8.
        table: [channels, 256].
    """
    if pixels.is_cuda and (fused := _fused_levels()) is not None:
        return fused(pixels, table)
    return plain_levels(pixels, table)


def plain_levels(pixels: Tensor, table: Tensor) -> Tensor:
    """The same by torch's own operations."""
    channel = torch.arange(len(table), device=table.device)[:, None, None]
    return table[channel, pixels.long()]


@functools.cache
def _fused_levels() -> Callable[[Tensor, Tensor], Tensor] | None:
    """The fused kernel, once it has shown here that it compiles and is right."""
    try:
        from taps.kernels.levels import fused_levels

        table = torch.arange(768.0, device="cuda").view(3, 256)
        pixels = torch.arange(2 * 3 * 90, device="cuda").to(torch.uint8).view(2, 3, 9, 10)
        if not torch.equal(fused_levels(pixels, table), plain_levels(pixels, table)):
            raise RuntimeError("its results are wrong")
    except Exception as error:
        log.info("Pixels are looked up by torch: the kernel cannot be used here (%s).", error)
        return None
    return fused_levels


def self_attention(qkv: Tensor, heads: int) -> Tensor:
    """Full attention of sequences over themselves.

    Args:
        qkv: Queries, keys and values side by side [batch, tokens, 3 · width].
        heads: Number of heads.

    Returns:
        The results before the output projection [batch, tokens, width].
    """
    # Torch's own is as fast one way; ours gains on the way back.
    if qkv.requires_grad and qkv.is_cuda and qkv.dtype in (torch.bfloat16, torch.float16):
        fused = _vision_attention(qkv.shape[1], qkv.shape[2], heads, qkv.dtype)
        if fused is not None:
            return fused(qkv, heads)
    return plain_self_attention(qkv, heads)


def plain_self_attention(qkv: Tensor, heads: int) -> Tensor:
    """The same by torch's own attention."""
    parts = qkv.chunk(3, dim=-1)
    q, k, v = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in parts)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


@functools.cache
def _vision_attention(
    tokens: int, width: int, heads: int, dtype: torch.dtype
) -> Callable[[Tensor, int], Tensor] | None:
    """The fused kernel, once it has shown here that it compiles for these sizes and is right."""
    try:
        from taps.kernels.vision_attention import SIZES, TOKENS, vision_attention

        if tokens > TOKENS or width // (3 * heads) not in SIZES:
            raise RuntimeError("it has not been made for these sizes")
        generator = torch.Generator().manual_seed(0)
        qkv = torch.randn(2, tokens, width, generator=generator).to("cuda", dtype).requires_grad_()
        with torch.enable_grad():
            fused, plain = (function(qkv, heads) for function in (vision_attention, plain_self_attention))
            slopes = [torch.autograd.grad(out.square().sum(), qkv)[0] for out in (fused, plain)]
        for mine, theirs in ((fused, plain), (slopes[0], slopes[1])):
            off = (mine.float() - theirs.float()).norm() / theirs.float().norm()
            if not off < 0.02:  # both round to half precision on the way
                raise RuntimeError(f"its results are off by {float(off):.3f}")
    except Exception as error:
        log.info("Vision attention is torch's: its kernel cannot be used here (%s).", error)
        return None
    return vision_attention


def add_norm(
    x: Tensor, delta: Tensor, norm: nn.LayerNorm, fresh: Tensor | None = None, *, first: int = 0
) -> tuple[Tensor, Tensor]:
    """The sum of two tensors of tokens, and its layer norm.

    Args:
        x: Tokens [..., tokens, width].
        delta: What is added to them.
        norm: Frozen.
        fresh: Tokens [count, width] that replace those from `first` on in every sequence of the sum.
        first: Where they go.
    """
    if x.is_cuda and x.dtype != torch.float64 and (fused := _fused_add_norm()) is not None:
        return fused(x, delta, fresh, norm.weight, norm.bias, norm.eps, first)
    return plain_add_norm(x, delta, fresh, norm.weight, norm.bias, norm.eps, first)


def plain_add_norm(
    x: Tensor, delta: Tensor, fresh: Tensor | None, weight: Tensor, bias: Tensor, eps: float, first: int
) -> tuple[Tensor, Tensor]:
    """The same by torch's own operations."""
    total = x + delta
    if fresh is not None:
        total = replace_tokens(total, fresh, first)
    return total, F.layer_norm(total, weight.shape, weight, bias, eps)


def replace_tokens(x: Tensor, fresh: Tensor, first: int) -> Tensor:
    """Every sequence of x [..., tokens, width] with the tokens from `first` on replaced."""
    parts = (x[..., :first, :], fresh.expand(*x.shape[:-2], -1, -1), x[..., first + len(fresh) :, :])
    return torch.cat(parts, dim=-2)


@functools.cache
def _fused_add_norm() -> Callable[..., tuple[Tensor, Tensor]] | None:
    """The fused kernel, once it has shown here that it compiles and is right."""
    try:
        from taps.kernels.norm import fused_add_norm

        generator = torch.Generator().manual_seed(0)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).cuda().requires_grad_()

        x, delta, fresh, weight, bias = draw(3, 5, 96), draw(3, 5, 96), draw(2, 96), draw(96), draw(96)
        upper = draw(3, 5, 96).detach()
        results = []
        with torch.enable_grad():
            for function in (fused_add_norm, plain_add_norm):
                total, normed = function(x, delta, fresh, weight.detach(), bias.detach(), 1e-5, 2)
                slopes = torch.autograd.grad((total.square() + upper * normed).sum(), [x, delta, fresh])
                results.append((total, normed, *slopes))
        for mine, theirs in zip(*results, strict=True):
            if not torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4):
                raise RuntimeError("its results are wrong")
    except Exception as error:
        log.info("Additions and layer norms run unfused: their kernel cannot be used here (%s).", error)
        return None
    return fused_add_norm
