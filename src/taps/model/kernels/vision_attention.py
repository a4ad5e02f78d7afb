"""Attention over a few hundred tokens, for CUDA in half precision: one Triton kernel each way.

On the way back one program has a whole head of an image to itself: nothing is added up by atomic operations.
Keys are cut into pieces of 128, 64, … instead of being padded to the next power of two. Queries, keys and
values are read where one product left them, side by side, and their gradients are written the same way:
nothing is split, cleared or joined.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TOKENS = 256
"""Longer sequences do not fit."""
SIZES = (32, 64)
"""Widths of a head that fit the kernels."""
ROWS = 64
"""Queries of one program on the way there, keys in one round on the way back."""


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _piece(  # type: ignore[no-untyped-def]
    start, base, tokens: tl.constexpr, stride: tl.constexpr, size: tl.constexpr, count: tl.constexpr
):
    """Where `count` tokens lie, and which of them there are."""
    place = start + tl.arange(0, count)
    return base + place[:, None] * stride + tl.arange(0, size)[None, :], place < tokens


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _scores(  # type: ignore[no-untyped-def]
    qkv, q, base, scale, start: tl.constexpr, tokens: tl.constexpr, width: tl.constexpr, size: tl.constexpr,
    count: tl.constexpr,
):  # fmt: skip
    """Scores of some keys for the given queries, and these keys' values."""
    at, there = _piece(start, base, tokens, 3 * width, size, count)
    k = tl.load(qkv + at + width, mask=there[:, None], other=0.0)
    v = tl.load(qkv + at + 2 * width, mask=there[:, None], other=0.0)
    scores = tl.dot(q, tl.trans(k)) * scale
    if start + count > tokens:
        scores = tl.where(there[None, :], scores, float("-inf"))
    return scores, v


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _vision_attention_forward(  # type: ignore[no-untyped-def]
    qkv, out, levels, scale,
    tokens: tl.constexpr, width: tl.constexpr, size: tl.constexpr, heads: tl.constexpr, rows: tl.constexpr,
    first: tl.constexpr, second: tl.constexpr, third: tl.constexpr,
):  # fmt: skip
    pair, part = tl.program_id(0), tl.program_id(1)
    image, head = (pair // heads).to(tl.int64), pair % heads
    base = image * tokens * (3 * width) + head * size
    at, there = _piece(part * rows, base, tokens, 3 * width, size, rows)
    q = tl.load(qkv + at, mask=there[:, None], other=0.0)
    one, v_one = _scores(qkv, q, base, scale, 0, tokens, width, size, first)
    top = tl.max(one, 1)
    if second > 0:
        two, v_two = _scores(qkv, q, base, scale, first, tokens, width, size, second)
        top = tl.maximum(top, tl.max(two, 1))
    if third > 0:
        three, v_three = _scores(qkv, q, base, scale, first + second, tokens, width, size, third)
        top = tl.maximum(top, tl.max(three, 1))
    one = tl.exp2(one - top[:, None])
    total = tl.sum(one, 1)
    mixed = tl.dot(one.to(q.dtype), v_one)
    if second > 0:
        two = tl.exp2(two - top[:, None])
        total += tl.sum(two, 1)
        mixed = tl.dot(two.to(q.dtype), v_two, mixed)
    if third > 0:
        three = tl.exp2(three - top[:, None])
        total += tl.sum(three, 1)
        mixed = tl.dot(three.to(q.dtype), v_three, mixed)
    to, _ = _piece(part * rows, image * tokens * width + head * size, tokens, width, size, rows)
    tl.store(out + to, (mixed / total[:, None]).to(q.dtype), mask=there[:, None])
    place = part * rows + tl.arange(0, rows)
    tl.store(levels + pair * tokens + place, top + tl.log2(total), mask=there)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _backward_round(  # type: ignore[no-untyped-def]
    qkv, result, q, upper, level, inner, base, start, scale, slope,
    tokens: tl.constexpr, width: tl.constexpr, size: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    """The gradients on some keys and values, and what these add to the gradients on all queries."""
    key, channel = start + tl.arange(0, rows), tl.arange(0, size)
    there = key[:, None] < tokens
    at = base + key[:, None] * (3 * width) + channel[None, :]
    k = tl.load(qkv + at + width, mask=there, other=0.0)
    v = tl.load(qkv + at + 2 * width, mask=there, other=0.0)
    weights = tl.exp2(tl.dot(q, tl.trans(k)) * scale - level[:, None])
    weights = tl.where(key[None, :] < tokens, weights, 0.0)
    by_weight = tl.dot(upper, tl.trans(v))
    by_score = (weights * (by_weight - inner[:, None]) * slope).to(q.dtype)
    by_v = tl.dot(tl.trans(weights.to(q.dtype)), upper)
    by_k = tl.dot(tl.trans(by_score), q)
    tl.store(result + at + width, by_k.to(q.dtype), mask=there)
    tl.store(result + at + 2 * width, by_v.to(q.dtype), mask=there)
    return tl.dot(by_score, k)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _vision_attention_backward(  # type: ignore[no-untyped-def]
    qkv, out, levels, given, result, scale, slope,
    tokens: tl.constexpr, width: tl.constexpr, size: tl.constexpr, heads: tl.constexpr, block: tl.constexpr,
    rows: tl.constexpr, rounds: tl.constexpr, tail: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0)
    image, head = pair // heads, pair % heads
    query, channel = tl.arange(0, block), tl.arange(0, size)
    there = query[:, None] < tokens
    base = image.to(tl.int64) * tokens * (3 * width) + head * size
    at = base + query[:, None] * (3 * width) + channel[None, :]
    where = image.to(tl.int64) * tokens * width + head * size + query[:, None] * width + channel[None, :]
    q = tl.load(qkv + at, mask=there, other=0.0)
    upper = tl.load(given + where, mask=there, other=0.0)
    inner = tl.sum(tl.load(out + where, mask=there, other=0.0).to(tl.float32) * upper.to(tl.float32), 1)
    level = tl.load(levels + pair * tokens + query, mask=query < tokens, other=0.0)
    by_q = tl.zeros((block, size), tl.float32)
    for index in range(rounds):
        by_q += _backward_round(
            qkv, result, q, upper, level, inner, base, index * rows, scale, slope, tokens, width, size, rows
        )
    if tail > 0:
        by_q += _backward_round(
            qkv, result, q, upper, level, inner, base, rounds * rows, scale, slope, tokens, width, size, tail
        )
    tl.store(result + at, by_q.to(q.dtype), mask=there)


class VisionAttention(torch.autograd.Function):
    """Full attention of sequences over themselves, [batch, tokens, 3 · width] → [batch, tokens, width]."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, heads: int) -> Tensor:
        qkv = qkv.contiguous()
        batch, tokens, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
        out = qkv.new_empty(batch, tokens, width)
        levels = torch.empty(batch * heads, tokens, dtype=torch.float32, device=qkv.device)
        ctx.heads = heads
        ctx.save_for_backward(qkv, out, levels)
        # Powers of two are what the hardware computes.
        scale = _scale(width, heads) * math.log2(math.e)
        first, second, third = pieces(tokens)
        _vision_attention_forward[batch * heads, triton.cdiv(tokens, ROWS)](
            qkv, out, levels, scale, tokens=tokens, width=width, size=width // heads, heads=heads, rows=ROWS,
            first=first, second=second, third=third, num_warps=4, num_stages=1,
        )  # fmt: skip
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        qkv, out, levels = ctx.saved_tensors
        batch, tokens, width = out.shape
        scale, result = _scale(width, ctx.heads), torch.empty_like(qkv)
        rounds, rest = divmod(tokens, ROWS)
        tail = max(16, triton.next_power_of_2(rest)) if rest else 0
        block = max(ROWS, triton.next_power_of_2(tokens))
        _vision_attention_backward[(batch * ctx.heads,)](
            qkv, out, levels, gradient.contiguous(), result, scale * math.log2(math.e), scale,
            tokens=tokens, width=width, size=width // ctx.heads, heads=ctx.heads, block=block, rows=ROWS,
            rounds=rounds, tail=tail, num_warps=8 if block > 128 else 4, num_stages=1,
        )  # fmt: skip
        return result, None


def _scale(width: int, heads: int) -> float:
    return float((width // heads) ** -0.5)


def pieces(tokens: int) -> tuple[int, int, int]:
    """Powers of two, the matrix units' least of 16 or more, that together hold so many tokens.

    >>> pieces(199), pieces(52), pieces(64)
    ((128, 64, 16), (32, 16, 16), (64, 0, 0))
    """
    found = []
    for last in (False, False, True):
        whole = triton.next_power_of_2(max(tokens, 1))
        piece = 0 if tokens <= 0 else max(16, whole if last or whole == tokens else whole // 2)
        found.append(piece)
        tokens -= piece
    return found[0], found[1], found[2]


def vision_attention(qkv: Tensor, heads: int) -> Tensor:
    """See `VisionAttention`."""
    return VisionAttention.apply(qkv, heads)  # type: ignore[no-any-return, no-untyped-call]
