"""Operations of the towers, by kernels of our own where those can be used and by torch's otherwise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.model.clip.layout import TextLayout, make_layout
from taps.model.kernels.many import way_back
from taps.model.kernels.verify import NotMadeError, draw, require_agreement, tried_once, within

Attend = Callable[..., Tensor]
"""Attention as `scaled_dot_product_attention` takes its arguments."""


class QuickGelu(torch.autograd.Function):
    """x · σ(1.702 x); one kernel each way on CUDA."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        kernels = quick_gelu_kernels() if x.is_cuda else None
        return (kernels[0] if kernels else plain_quick_gelu)(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return quick_gelu_backward(gradient, *ctx.saved_tensors)  # type: ignore[no-any-return]


@way_back(1)
def quick_gelu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    kernels = quick_gelu_kernels() if x.is_cuda else None
    return (kernels[1] if kernels else plain_quick_gelu_backward)(gradient, x)


def quick_gelu(x: Tensor) -> Tensor:
    """OpenAI's approximation of GELU."""
    return QuickGelu.apply(x)  # type: ignore[no-any-return, no-untyped-call]


def plain_quick_gelu(x: Tensor) -> Tensor:
    return torch.sigmoid(1.702 * x).mul_(x)


def plain_quick_gelu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    gate = torch.sigmoid(1.702 * x)
    return gradient * (gate + 1.702 * x * gate * (1 - gate))


@tried_once("QuickGELU runs unfused")
def quick_gelu_kernels() -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]:
    from taps.model.kernels.quick_gelu import compile_quick_gelu

    forward, backward = compile_quick_gelu()
    x, upper = (draw(100, dtype=torch.bfloat16, seed=seed).detach() for seed in (0, 1))
    require_agreement(forward, plain_quick_gelu, [x], within(0.02))
    require_agreement(backward, plain_quick_gelu_backward, [upper, x], within(0.02))
    return forward, backward


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
}


def hidden_layer(x: Tensor, linear: nn.Linear, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """The activation of a linear layer's result.

    Where nothing is differentiated, many rows are computed by one kernel.
    """
    if activation is quick_gelu and x.is_cuda and x.numel() >= MANY_ROWS * x.shape[-1]:
        outer, inner = linear.weight.shape
        fused = None if torch.is_grad_enabled() else linear_gelu_kernel(outer, inner, x.dtype)
        if fused is not None:
            return fused(x, linear.weight, linear.bias)
    return activation(linear(x))


MANY_ROWS = 4096
"""From here on the kernel that joins a product and QuickGELU was measured to gain."""


def plain_linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return plain_quick_gelu(F.linear(x, weight, bias))


@tried_once("Products and QuickGELU run unfused")
def linear_gelu_kernel(
    outer: int, inner: int, dtype: torch.dtype
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Compiled for, and tried with, layers of these sizes."""
    from taps.model.kernels.linear_gelu import COLUMNS, DEPTH, fused_linear_gelu

    if dtype not in (torch.bfloat16, torch.float16) or outer % COLUMNS or inner % DEPTH:
        raise NotMadeError("it has not been made for these sizes")
    if torch.cuda.get_device_capability() < (9, 0):
        raise NotMadeError("it has been made for Hopper GPUs")
    shapes = (300, inner), (outer, inner), (outer,)
    inputs = [draw(*shape, dtype=dtype, seed=seed).detach() for seed, shape in enumerate(shapes)]
    require_agreement(fused_linear_gelu, plain_linear_gelu, inputs, within(0.02))
    return fused_linear_gelu


class Spread(torch.autograd.Function):
    """Packed tokens [..., P + T, w] → whole texts [..., K, P + S, w]: a gather, no atomic additions back."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, layout: TextLayout) -> Tensor:
        ctx.layout = layout
        rows = tokens.index_select(-2, layout.spread.flatten())
        return rows.view(*tokens.shape[:-2], *layout.spread.shape, tokens.shape[-1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return spread_backward(gradient, ctx.layout), None


@way_back(1)
def spread_backward(gradient: Tensor, layout: TextLayout) -> Tensor:
    shared = len(layout.prefix)
    packed = gradient.flatten(-3, -2).index_select(-2, layout.collect)
    packed[..., :shared, :] = gradient[..., :shared, :].sum(dim=-3)
    return packed


class Collect(torch.autograd.Function):
    """Rows by their places, each taken at most once."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor) -> Tensor:
        ctx.places, ctx.count = places, rows.shape[-2]
        return rows.index_select(-2, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return collect_backward(gradient, ctx.places, ctx.count), None


@way_back(1)
def collect_backward(gradient: Tensor, places: Tensor, count: int) -> Tensor:
    rows = gradient.new_zeros(*gradient.shape[:-2], count, gradient.shape[-1])
    return rows.index_copy_(-2, places, gradient)


def collect(rows: Tensor, places: Tensor) -> Tensor:
    """Rows [..., rows, width] at distinct places."""
    return Collect.apply(rows, places)  # type: ignore[no-any-return, no-untyped-call]


def text_attention(qkv: Tensor, layout: TextLayout, heads: int) -> Tensor:
    """Causal attention of each text over the shared prefix and its own tokens.

    Args:
        qkv: Queries, keys and values of the packed tokens side by side [..., P + T, 3 · width].
        layout: Which token belongs where.
        heads: Number of heads.

    Returns:
        The packed tokens' results before the output projection [..., P + T, width].
    """
    small = qkv.shape[-2] * qkv.shape[-1] < 2**31  # the kernel counts in 32 bits
    if small and qkv.is_cuda and qkv.dtype != torch.float64:
        fused = text_attention_kernel(qkv.shape[-1], heads, qkv.dtype)
        if fused is not None:
            return fused(qkv, layout, heads)
    return plain_text_attention(qkv, layout, heads)


def plain_text_attention(
    qkv: Tensor, layout: TextLayout, heads: int, attention: Attend = F.scaled_dot_product_attention
) -> Tensor:
    """The same by torch's own attention, over whole texts."""
    texts: Tensor = Spread.apply(qkv, layout)  # type: ignore[no-untyped-call]
    parts = texts.flatten(0, -3).chunk(3, dim=-1)
    q, k, v = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in parts)
    seen = attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    return collect(seen.reshape(*qkv.shape[:-2], -1, seen.shape[-1]), layout.collect)


def literal_attention(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool = False) -> Tensor:
    """Attention by its formula, in float32; in trials, for which torch's own would take long to start."""
    scores: Tensor = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    if is_causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(ahead, float("-inf"))
    return (scores.softmax(dim=-1) @ v.float()).to(q.dtype)


def attend(queries: Tensor, x: Tensor, weight: Tensor, bias: Tensor, heads: int) -> Tensor:
    """Attention of some queries [batch, few, width] over all tokens [batch, tokens, width].

    Args:
        queries: Before their projection.
        x: What keys and values are made of.
        weight: Of queries, keys and values, one below the other [3 · width, width].
        bias: Likewise [3 · width].
        heads: Number of heads.
    """
    width = x.shape[-1]
    q = F.linear(queries, weight[:width], bias[:width])
    k, v = F.linear(x, weight[width:], bias[width:]).chunk(2, dim=-1)
    q, k, v = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


@tried_once("Text attention runs unfused")
def text_attention_kernel(
    width: int, heads: int, dtype: torch.dtype
) -> Callable[[Tensor, TextLayout, int], Tensor]:
    """Compiled for, and tried with, tokens of these sizes: what is tried is what is used later."""
    from taps.model.kernels.text_attention import short_attention

    layout = make_layout([[1, 2, 3, 9], [1, 2, 4, 5, 9], [1, 2, 6, 9]]).to("cuda")
    inputs = [draw(len(layout.collect), width, dtype=dtype), layout, heads]
    plain = functools.partial(plain_text_attention, attention=literal_attention)
    require_agreement(short_attention, plain, inputs, within(TOLERANCE[dtype]))
    return short_attention


TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.02}
"""How far a kernel may be from torch's operations: both round on the way."""


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
        fused = self_attention_kernel(qkv.shape[1], qkv.shape[2], heads, qkv.dtype)
        if fused is not None:
            return fused(qkv, heads)
    return plain_self_attention(qkv, heads)


def plain_self_attention(
    qkv: Tensor, heads: int, attention: Attend = F.scaled_dot_product_attention
) -> Tensor:
    """The same by torch's own attention."""
    parts = qkv.chunk(3, dim=-1)
    q, k, v = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in parts)
    return attention(q, k, v).transpose(1, 2).flatten(2)


@tried_once("Vision attention is torch's")
def self_attention_kernel(
    tokens: int, width: int, heads: int, dtype: torch.dtype
) -> Callable[[Tensor, int], Tensor]:
    """Compiled for, and tried with, sequences of these sizes."""
    from taps.model.kernels.vision_attention import SIZES, TOKENS, vision_attention

    if tokens > TOKENS or width // (3 * heads) not in SIZES:
        raise NotMadeError("it has not been made for these sizes")
    inputs = [draw(2, tokens, width, dtype=dtype), heads]
    plain = functools.partial(plain_self_attention, attention=literal_attention)
    require_agreement(vision_attention, plain, inputs, within(TOLERANCE[dtype]))
    return vision_attention


def add_norm(
    x: Tensor, delta: Tensor, norm: nn.LayerNorm, fresh: Tensor | None = None, *, first: int = 0
) -> tuple[Tensor, Tensor]:
    """The sum of two tensors of tokens, and its layer norm.

    Args:
        x: Tokens [..., tokens, width].
        delta: What is added to them.
        norm: The layer norm.
        fresh: Tokens that replace those from `first` on in every sequence of the sum [count, width], or of
            each sequence its own [..., count, width].
        first: Where they go.
    """
    frozen = not norm.weight.requires_grad  # the kernel has gradients for the tokens alone
    if frozen and x.is_cuda and x.dtype != torch.float64:
        fused = norm_kernel(x.shape[-1], x.dtype)
        if fused is not None:
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
    last = first + fresh.shape[-2]
    parts = (x[..., :first, :], fresh.expand(*x.shape[:-2], -1, -1), x[..., last:, :])
    return torch.cat(parts, dim=-2)


@tried_once("Additions and layer norms run unfused")
def norm_kernel(width: int, dtype: torch.dtype) -> Callable[..., tuple[Tensor, Tensor]]:
    """Compiled for, and tried with, tokens of this width."""
    from taps.model.kernels.norm import fused_add_norm

    x, delta, fresh = (
        draw(*shape, width, dtype=dtype, seed=seed) for seed, shape in enumerate(((3, 5), (3, 5), (2,)))
    )
    weight, bias = (draw(width, dtype=dtype, seed=seed).detach() for seed in (3, 4))
    for replaced in (fresh, None):
        inputs = [x, delta, replaced, weight, bias, 1e-5, 2]
        require_agreement(fused_add_norm, plain_add_norm, inputs, within(TOLERANCE[dtype]))
    return fused_add_norm
