"""The transformer of either tower: blocks that take prompts in between, and rotary places.

Prompts are tensors [depth, tokens, width]: row 0 enters with the input, row j replaces the tokens that row
j − 1 left before block j (MaPLe's way). Where they differ from image to image they are [depth, batch, tokens,
width].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from taps.clip.config import ClipConfig, TowerConfig
from taps.clip.layers import Attention, GatedMlp, Mlp
from taps.clip.layout import TextLayout
from taps.clip.ops import add_norm, collect, self_attention, text_attention

EVA_GRID = 16


class Block(nn.Module):
    """One pre-norm transformer block, on whole sequences or on prefix + packed tokens (causal text).

    Its result is left as two summands, so that the addition can be done together with the next layer norm.
    """

    def __init__(self, tower: TowerConfig) -> None:
        super().__init__()
        width, eps = tower.width, tower.eps
        self.ln_1 = nn.LayerNorm(width, eps=eps)
        self.attn = Attention(width, tower.heads, inner_eps=eps if tower.gated else None)
        self.ln_2 = nn.LayerNorm(width, eps=eps)
        self.mlp: nn.Module = (
            GatedMlp(width, tower.mlp, eps) if tower.gated else Mlp(width, tower.mlp, tower.activation)
        )

    def whole(
        self, x: Tensor, normed: Tensor, *, rotary: Rotary | None = None, only: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Full attention over [batch, tokens, width].

        Args:
            x: Input of the block.
            normed: Its layer norm by `ln_1`.
            rotary: Turns queries and keys by their place.
            only: The token of each sequence whose output alone is wanted; the others' are read by nobody.

        Returns:
            Two summands of the output.
        """
        attn = self.attn
        if only is not None and rotary is None:
            x, seen = pick(x, only), attn.of(pick(normed, only), normed)
        else:
            qkv = attn.project(normed)
            seen = self_attention(qkv if rotary is None else rotary(qkv, attn.heads), attn.heads)
            x, seen = (x, seen) if only is None else (pick(x, only), pick(seen, only))
        x, normed = add_norm(x, attn.out(seen), self.ln_2)
        return x, self.mlp(normed)

    def causal(self, x: Tensor, normed: Tensor, layout: TextLayout, *, last: bool) -> tuple[Tensor, Tensor]:
        """Causal attention over a shared prefix and packed own tokens [P + T, width]; two summands.

        Attention alone is computed over whole texts; all else sees each token once. In the `last` block only
        the end markers' outputs are computed; they come back as [K, width].
        """
        attn = self.attn
        seen = text_attention(attn.project(normed), layout, attn.heads)
        if last:
            x, seen = collect(x, layout.ends), collect(seen, layout.ends)
        x, normed = add_norm(x, attn.out(seen), self.ln_2)
        return x, self.mlp(normed)


def pick(x: Tensor, place: int | Tensor) -> Tensor:
    """One token of each sequence [batch, tokens, width] → [batch, 1, width]."""
    if isinstance(place, int):
        return x[:, place : place + 1]
    return x.take_along_dim(place[:, None, None], dim=1)


class Transformer(nn.Module):
    def __init__(self, tower: TowerConfig) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList([Block(tower) for _ in range(tower.layers)])

    def whole(
        self,
        x: Tensor,
        normed: Tensor | None,
        prompts: Tensor | None,
        first: int,
        *,
        rotary: Rotary | None = None,
        only: int | Tensor | None = None,
        layers: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """All blocks over whole sequences [batch, tokens, width].

        Args:
            x: Input of block 0, the first row of prompts included.
            normed: Its layer norm there, if that is known.
            prompts: [depth, tokens, width] or [depth, batch, tokens, width]; row j replaces tokens before
                block j.
            first: Where they stand in a sequence.
            rotary: See `Block.whole`.
            only: See `Block.whole`; of the last block.
            layers: Blocks whose inputs are wanted.

        Returns:
            Two summands of the last block's output, and the inputs of the wanted blocks.
        """
        kept, rest = {}, None
        for index, block in enumerate(self.resblocks):
            assert isinstance(block, Block)
            if rest is None:
                normed = block.ln_1(x) if normed is None else normed
            else:
                x, normed = add_norm(x, rest, block.ln_1, at_depth(prompts, index), first=first)
            if index in layers:
                kept[index] = x
            last = index == len(self.resblocks) - 1
            assert normed is not None
            x, rest = block.whole(x, normed, rotary=rotary, only=only if last else None)
        assert rest is not None
        return x, rest, [kept[layer] for layer in layers]


def at_depth(prompts: Tensor | None, index: int) -> Tensor | None:
    """The prompts that enter before block `index`, where it is not the first."""
    return prompts[index] if prompts is not None and 0 < index < len(prompts) else None


class Rotary(nn.Module):
    """Turns pairs of channels of queries and keys by angles that grow with a patch's row and column.

    Tokens without a place, the class token and prompts, stay as they are.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        side, size = config.image_size // config.patch_size, config.vision_width // config.vision_heads
        place = torch.arange(side, device="cpu", dtype=torch.float64)
        if config.rotary == "eva":  # places of all grids as if on the 16 × 16 it was trained with
            place = place * (EVA_GRID / side)
        elif config.class_token:  # PE counts from 1 where it has a class token
            place = place + 1
        speed = 10_000.0 ** -(torch.arange(size // 4, device="cpu", dtype=torch.float64) / (size // 4))
        angle = place[:, None] * speed
        rows, columns = angle[:, None].expand(side, side, -1), angle.expand(side, side, -1)
        both = (rows, columns) if config.rotary == "eva" else (columns, rows)
        angles = torch.cat(both, dim=-1).flatten(0, 1).repeat_interleave(2, dim=-1)
        still = torch.zeros(int(config.class_token), size, device="cpu", dtype=torch.float64)
        self.angles = torch.cat([still, angles])
        self.register_buffer("cos", self.angles.cos().float(), persistent=False)
        self.register_buffer("sin", self.angles.sin().float(), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Rotary:
        """Move or convert as any module, rounding once, from the angles themselves."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.cos, self.sin = self.angles.cos().to(self.cos), self.angles.sin().to(self.sin)
        return self

    def forward(self, qkv: Tensor, heads: int) -> Tensor:
        """Queries, keys and values side by side [batch, tokens, 3 · width], the first two turned."""
        parts = qkv.view(*qkv.shape[:2], 3, heads, -1)
        turned = parts[:, : len(self.cos), :2]
        cos, sin = (each[:, None, None].to(qkv.dtype) for each in (self.cos, self.sin))
        across = torch.stack([-turned[..., 1::2], turned[..., ::2]], dim=-1).flatten(-2)
        turned = turned * cos + across * sin
        both = torch.cat([turned, parts[:, len(self.cos) :, :2]], dim=1)
        return torch.cat([both, parts[:, :, 2:]], dim=2).flatten(2)
