"""Layers and the transformer of either tower: blocks that take prompts, and rotary position embeddings.

Prompts are tensors [depth, tokens, width]: row 0 enters with the input, row j replaces the tokens that row
j − 1 left before block j (as in MaPLe). Where they differ by image they are [depth, batch, tokens, width].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.model.clip import ops
from taps.model.clip.config import ClipConfig
from taps.model.clip.layout import TextLayout

EVA_GRID = 16


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))


class Unfilled:
    """Left uninitialised: the weights come from a file, and drawing random ones would cost seconds."""

    def reset_parameters(self) -> None:
        pass


class Linear(Unfilled, nn.Linear): ...


class Embedding(Unfilled, nn.Embedding): ...


class Conv(Unfilled, nn.Conv2d): ...


class Attention(nn.Module):
    """The weights of multi-head attention, in the layout of OpenAI's checkpoints."""

    def __init__(self, width: int, heads: int, inner_eps: float | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = parameter(3 * width, width)
        self.in_proj_bias = parameter(3 * width)
        self.ln = None if inner_eps is None else nn.LayerNorm(width, eps=inner_eps)
        self.out_proj = Linear(width, width)

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values side by side [..., 3 · width]."""
        return F.linear(x, self.in_proj_weight, self.in_proj_bias)

    def attend(self, queries: Tensor, x: Tensor) -> Tensor:
        """Some queries [batch, few, width] over all tokens [batch, tokens, width], before `out_proj`."""
        return ops.attend(queries, x, self.in_proj_weight, self.in_proj_bias, self.heads)

    def out(self, x: Tensor) -> Tensor:
        return self.out_proj(x if self.ln is None else self.ln(x))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    def __init__(self, width: int, hidden: int, activation: str) -> None:
        super().__init__()
        self.c_fc = Linear(width, hidden)
        self.c_proj = Linear(hidden, width)
        self.activation = ops.ACTIVATION[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(ops.hidden_layer(x, self.c_fc, self.activation))  # type: ignore[no-any-return]


class GatedMlp(nn.Module):
    """EVA-02's SwiGLU with a layer norm before the output projection."""

    def __init__(self, width: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.c_gate = Linear(width, hidden)
        self.c_fc = Linear(width, hidden)
        self.ln = nn.LayerNorm(hidden, eps=eps)
        self.c_proj = Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.ln(F.silu(self.c_gate(x)) * self.c_fc(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """One pre-norm transformer block, on whole sequences or on prefix + packed tokens (causal text).

    It returns two summands, so that one kernel can do the addition and the next layer norm.
    """

    def __init__(
        self, width: int, heads: int, hidden: int, activation: str, eps: float, *, gated: bool = False
    ) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=eps)
        self.attn = Attention(width, heads, inner_eps=eps if gated else None)
        self.ln_2 = nn.LayerNorm(width, eps=eps)
        self.mlp = GatedMlp(width, hidden, eps) if gated else Mlp(width, hidden, activation)

    def whole(
        self, x: Tensor, normed: Tensor, *, rotary: Rotary | None = None, only: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Full attention over x [batch, tokens, width], given with its norm by `ln_1`; two summands.

        `only` is the one token of each sequence whose output is computed; None for all.
        """
        attn = self.attn
        if only is not None and rotary is None:
            x, attended = pick(x, only), attn.attend(pick(normed, only), normed)
        else:
            qkv = attn.project(normed)
            attended = ops.self_attention(qkv if rotary is None else rotary(qkv, attn.heads), attn.heads)
            if only is not None:
                x, attended = pick(x, only), pick(attended, only)
        x, normed = ops.add_norm(x, attn.out(attended), self.ln_2)
        return x, self.mlp(normed)

    def causal(self, x: Tensor, normed: Tensor, layout: TextLayout, *, last: bool) -> tuple[Tensor, Tensor]:
        """Causal attention over a shared prefix and packed own tokens [P + T, width]; two summands.

        Only attention is computed over whole texts; everything else sees each token once. The `last` block
        computes the outputs of the end markers only [K, width].
        """
        attn = self.attn
        attended = ops.text_attention(attn.project(normed), layout, attn.heads)
        if last:
            x, attended = ops.collect(x, layout.ends), ops.collect(attended, layout.ends)
        x, normed = ops.add_norm(x, attn.out(attended), self.ln_2)
        return x, self.mlp(normed)


def pick(x: Tensor, position: int | Tensor) -> Tensor:
    """One token of each sequence [batch, tokens, width] → [batch, 1, width]."""
    if isinstance(position, int):
        return x[:, position : position + 1]
    return x.take_along_dim(position[:, None, None], dim=1)


class Transformer(nn.Module):
    def __init__(self, blocks: Iterable[Block]) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(blocks)

    def run(
        self,
        x: Tensor,
        prompts: Tensor | None,
        first: int,
        *,
        layout: TextLayout | None = None,
        rotary: Rotary | None = None,
        only: int | Tensor | None = None,
        layers: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """All blocks over whole sequences [batch, tokens, width], or over packed texts with a `layout`.

        Args:
            x: Input of block 0, the first row of prompts included.
            prompts: Row j replaces the tokens from position `first` on before block j.
            first: Position of the prompts in a sequence.
            layout: See `Block.causal`.
            rotary: See `Block.whole`.
            only: See `Block.whole`; of the last block.
            layers: Blocks whose inputs are returned.

        Returns:
            Two summands of the last block's output, and the inputs of `layers`.
        """
        kept, rest = {}, None
        for index, block in enumerate(self.resblocks):
            assert isinstance(block, Block)
            if rest is None:
                normed = block.ln_1(x)
            else:
                x, normed = ops.add_norm(x, rest, block.ln_1, at_depth(prompts, index), first=first)
            if index in layers:
                kept[index] = x
            last = index == len(self.resblocks) - 1
            if layout is not None:
                x, rest = block.causal(x, normed, layout, last=last)
            else:
                x, rest = block.whole(x, normed, rotary=rotary, only=only if last else None)
        assert rest is not None
        return x, rest, [kept[layer] for layer in layers]


def at_depth(prompts: Tensor | None, index: int) -> Tensor | None:
    """The prompts that enter before block `index`, where it is not the first."""
    return prompts[index] if prompts is not None and 0 < index < len(prompts) else None


class Rotary(nn.Module):
    """Rotary position embedding: pairs of channels of queries and keys rotate with a patch's row and column.

    The class token and prompts have no position and stay as they are.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        side, size = config.image_size // config.patch_size, config.vision_width // config.vision_heads
        position = torch.arange(side, device="cpu", dtype=torch.float64)
        if config.rotary == "eva":  # any grid is scaled to the 16 × 16 it was trained with
            position = position * (EVA_GRID / side)
        elif config.class_token:  # PE counts from 1 where it has a class token
            position = position + 1
        speed = 10_000.0 ** -(torch.arange(size // 4, device="cpu", dtype=torch.float64) / (size // 4))
        angle = position[:, None] * speed
        rows, columns = angle[:, None].expand(side, side, -1), angle.expand(side, side, -1)
        both = (rows, columns) if config.rotary == "eva" else (columns, rows)
        angles = torch.cat(both, dim=-1).flatten(0, 1).repeat_interleave(2, dim=-1)
        still = torch.zeros(int(config.class_token), size, device="cpu", dtype=torch.float64)
        self.angles = torch.cat([still, angles])
        self.register_buffer("cos", self.angles.cos().float(), persistent=False)
        self.register_buffer("sin", self.angles.sin().float(), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Rotary:
        """Move or convert as any module, but round only once, from the float64 angles."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.cos, self.sin = self.angles.cos().to(self.cos), self.angles.sin().to(self.sin)
        return self

    def forward(self, qkv: Tensor, heads: int) -> Tensor:
        """Queries, keys and values side by side [batch, tokens, 3 · width], the first two rotated."""
        parts = qkv.view(*qkv.shape[:2], 3, heads, -1)
        turned = parts[:, : len(self.cos), :2]
        cos, sin = (each[:, None, None].to(qkv.dtype) for each in (self.cos, self.sin))
        across = torch.stack([-turned[..., 1::2], turned[..., ::2]], dim=-1).flatten(-2)
        turned = turned * cos + across * sin
        both = torch.cat([turned, parts[:, len(self.cos) :, :2]], dim=1)
        return torch.cat([both, parts[:, :, 2:]], dim=2).flatten(2)
