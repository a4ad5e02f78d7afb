"""Attention over many short texts that share their beginning: one Triton kernel each way, for CUDA.

The kernels of torch are made for long sequences and spend most of their work on padding when a text has a
dozen tokens. These read packed tokens where they lie and write packed results: nothing is gathered or padded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from taps.model.kernels.many import way_back

if TYPE_CHECKING:
    from taps.model.clip.layout import TextLayout

GROUP = 8  # texts whose gradients on the shared tokens are added up before they are written


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _weights(q, k, place, valid, scale):  # type: ignore[no-untyped-def]
    """Softmax of one text's causal scores. A place without a token sees itself: its row stays finite."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    seen = (place[:, None] >= place[None, :]) & valid[None, :]
    scores = tl.where(seen | (place[:, None] == place[None, :]), scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


# One compilation for any classes, whatever their number and the lengths of their names.
@triton.jit(do_not_specialize=["tokens", "shared", "whole"], do_not_specialize_on_alignment=["order"])  # type: ignore[untyped-decorator, unused-ignore]
def _text_attention_forward(  # type: ignore[no-untyped-def]
    qkv, out, spread, lengths, order, tokens, shared, whole, scale,
    width: tl.constexpr, size: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    text, head = tl.load(order + tl.program_id(0)), tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64) * tokens * width
    qkv, out = qkv + 3 * batch, out + batch
    place, channel = tl.arange(0, block), tl.arange(0, size)
    valid = place < tl.load(lengths + text)
    row = tl.load(spread + text * whole + place, mask=valid, other=0).to(tl.int32)
    at = row[:, None] * (3 * width) + head * size + channel[None, :]
    q = tl.load(qkv + at, mask=valid[:, None], other=0.0)
    k = tl.load(qkv + at + width, mask=valid[:, None], other=0.0)
    v = tl.load(qkv + at + 2 * width, mask=valid[:, None], other=0.0)
    weights = _weights(q, k, place, valid, scale)
    mixed = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    # The shared tokens' results are the first text's.
    mine = valid & (place >= tl.where(text == 0, 0, shared))
    to = row[:, None] * width + head * size + channel[None, :]
    tl.store(out + to, mixed.to(out.dtype.element_ty), mask=mine[:, None])


@triton.jit(  # type: ignore[untyped-decorator, unused-ignore]
    do_not_specialize=["texts", "tokens", "parts", "shared", "whole"],
    do_not_specialize_on_alignment=["order"],
)
def _text_attention_backward(  # type: ignore[no-untyped-def]
    qkv, given, result, partial, spread, lengths, order, texts, tokens, parts, shared, whole, scale,
    width: tl.constexpr, size: tl.constexpr, block: tl.constexpr, group: tl.constexpr,
    each_forward: tl.constexpr,
):  # fmt: skip
    part, head = tl.program_id(0), tl.program_id(1)
    number = tl.program_id(2).to(tl.int64)
    batch = number * tokens * width
    if each_forward:  # else one forward for all gradients
        qkv += 3 * batch
    given, result, partial = given + batch, result + 3 * batch, partial + number * parts * shared * 2 * width
    place, channel = tl.arange(0, block), tl.arange(0, size)
    sum_k = tl.zeros((block, size), tl.float32)
    sum_v = tl.zeros((block, size), tl.float32)
    for each in range(group):
        inside = part * group + each < texts
        text = tl.load(order + part * group + each, mask=inside, other=0)
        valid = place < tl.load(lengths + text, mask=inside, other=0)
        own = valid & (place >= shared)
        row = tl.load(spread + text * whole + place, mask=valid, other=0).to(tl.int32)
        at = row[:, None] * (3 * width) + head * size + channel[None, :]
        q = tl.load(qkv + at, mask=valid[:, None], other=0.0)
        k = tl.load(qkv + at + width, mask=valid[:, None], other=0.0)
        v = tl.load(qkv + at + 2 * width, mask=valid[:, None], other=0.0)
        mine = valid & (place >= tl.where(text == 0, 0, shared))
        where = row[:, None] * width + head * size + channel[None, :]
        upper = tl.load(given + where, mask=mine[:, None], other=0.0)
        weights = _weights(q, k, place, valid, scale)
        by_weight = tl.dot(upper, tl.trans(v), input_precision="ieee")
        inner = tl.sum(weights * by_weight, 1)
        by_score = (weights * (by_weight - inner[:, None]) * scale).to(q.dtype)
        by_q = tl.dot(by_score, k, input_precision="ieee")
        by_k = tl.dot(tl.trans(by_score), q, input_precision="ieee")
        by_v = tl.dot(tl.trans(weights.to(q.dtype)), upper, input_precision="ieee")
        # What the shared tokens see is counted with the first text alone.
        tl.store(result + at, by_q.to(q.dtype), mask=mine[:, None])
        tl.store(result + at + width, by_k.to(q.dtype), mask=own[:, None])
        tl.store(result + at + 2 * width, by_v.to(q.dtype), mask=own[:, None])
        common = valid[:, None] & (place[:, None] < shared)
        sum_k += tl.where(common, by_k, 0.0)
        sum_v += tl.where(common, by_v, 0.0)
    to = (part * shared + place[:, None]) * (2 * width) + head * size + channel[None, :]
    tl.store(partial + to, sum_k, mask=place[:, None] < shared)
    tl.store(partial + to + width, sum_v, mask=place[:, None] < shared)


class ShortAttention(torch.autograd.Function):
    """Causal attention of each text over the shared tokens and its own, all packed [..., P + T, width]."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, layout: TextLayout, heads: int) -> Tensor:
        ctx.save_for_backward(qkv)
        ctx.layout, ctx.heads = layout, heads
        *batch, tokens, triple = qkv.shape
        width = triple // 3
        out = qkv.new_empty(*batch, tokens, width)
        for first, count, sizes in _launches(layout, width, heads):
            _text_attention_forward[count, heads, math.prod(batch)](
                qkv, out, layout.spread, layout.lengths, layout.order[first:], tokens, len(layout.prefix),
                layout.spread.shape[1], (width // heads) ** -0.5, **sizes,
            )  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (qkv,) = ctx.saved_tensors
        return attention_backward(gradient, qkv, ctx.layout, ctx.heads), None, None


@way_back(1)
def attention_backward(gradient: Tensor, qkv: Tensor, layout: TextLayout, heads: int) -> Tensor:
    """The gradient on queries, keys and values; of several gradients, where there are more of them."""
    *batch, tokens, width = gradient.shape
    shared, count = len(layout.prefix), math.prod(batch)
    launches = _launches(layout, width, heads)
    groups = [-(-texts // GROUP) for _, texts, _ in launches]
    result, gradient = qkv.new_empty(*batch, tokens, 3 * width), gradient.contiguous()
    partial = torch.empty(count, sum(groups), shared, 2 * width, dtype=torch.float32, device=qkv.device)
    done, each_forward = 0, qkv.ndim == gradient.ndim
    for (first, texts, sizes), parts in zip(launches, groups, strict=True):
        _text_attention_backward[parts, heads, count](
            qkv, gradient, result, partial[:, done:], layout.spread, layout.lengths, layout.order[first:],
            texts, tokens, sum(groups), shared, layout.spread.shape[1], (width // heads) ** -0.5, **sizes,
            group=GROUP, each_forward=each_forward,
        )  # fmt: skip
        done += parts
    result[..., :shared, width:] = partial.sum(dim=1).view(*batch, shared, 2 * width)
    return result


def _launches(layout: TextLayout, width: int, heads: int) -> list[tuple[int, int, dict[str, int]]]:
    """For each size of texts: where they begin in the layout's order, how many, and the kernels' sizes."""
    found, first = [], 0
    for room, count in layout.rooms:
        warps = 1 if room <= 16 else 2 if room <= 32 else 4
        sizes = {"width": width, "size": width // heads, "block": room, "num_warps": warps}
        found.append((first, count, sizes))
        first += count
    return found


def short_attention(qkv: Tensor, layout: TextLayout, heads: int) -> Tensor:
    """See `ShortAttention`."""
    return ShortAttention.apply(qkv, layout, heads)  # type: ignore[no-any-return, no-untyped-call]
