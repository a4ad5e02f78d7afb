"""The vision transformer: patches, blocks, pooling, projection."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.model.clip.config import ClipConfig
from taps.model.clip.ops import add_norm, replace_tokens
from taps.model.clip.transformer import Attention, Block, Conv, Mlp, Rotary, Transformer, at_depth, parameter


class MapPool(nn.Module):
    """Multi-head attention pooling: a learned query over the tokens, then a hidden layer."""

    def __init__(self, width: int, heads: int, hidden: int, activation: str, eps: float) -> None:
        super().__init__()
        self.probe = parameter(1, 1, width)
        self.attn = Attention(width, heads)
        self.ln = nn.LayerNorm(width, eps=eps)
        self.mlp = Mlp(width, hidden, activation)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [batch, tokens, width] → [batch, width]."""
        x = self.attn.out(self.attn.attend(self.probe.expand(len(x), -1, -1), x))
        return (x + self.mlp(self.ln(x)))[:, 0]  # type: ignore[no-any-return]


class VisionTower(nn.Module):
    """Images → features. Prompts stand after the patches, before `ln_pre`, and are not pooled."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        width, eps = config.vision_width, config.vision_eps
        self.image_tokens, self.first_patch = config.image_tokens, int(config.class_token)
        self.pooling = config.vision_pool
        self.stem = None
        channels, size = 3, config.patch_size
        if config.patch_stem:
            channels, size = width // 4, size // 8
            self.stem = nn.Sequential(Conv(3, channels, 4, stride=4), Conv(channels, channels, 2, stride=2))
        self.conv1 = Conv(channels, width, size, size, bias=config.patch_bias)
        self.class_embedding = parameter(width) if config.class_token else None
        self.positional_embedding = parameter(config.image_tokens, width)
        self.ln_pre = nn.LayerNorm(width, eps=eps) if config.ln_pre else None
        sizes = (width, config.vision_heads, config.vision_mlp, config.activation, eps)
        self.transformer = Transformer(Block(*sizes, gated=config.gated) for _ in range(config.vision_layers))
        self.ln_post = nn.LayerNorm(width, eps=eps)
        self.pool = None
        if config.vision_pool == "map":
            heads, hidden = config.pool_heads or config.vision_heads, config.pool_mlp or config.vision_mlp
            self.pool = MapPool(width, heads, hidden, config.activation, eps)
        self.proj = parameter(width, config.embed_dim) if config.vision_projection else None
        biased = config.vision_projection and config.vision_projection_bias
        self.proj_bias = parameter(config.embed_dim) if biased else None
        self.rotary = None if config.rotary == "none" else Rotary(config)

    def patches(self, images: Tensor) -> Tensor:
        """Embedded patches, without position embeddings [batch, patches, width]."""
        for conv in self.stem or ():
            images = F.gelu(conv(images))
        patches = unfold_patches(images, self.conv1.kernel_size[0])
        return F.linear(patches, self.conv1.weight.flatten(1), self.conv1.bias)

    def tokens(self, images: Tensor) -> Tensor:
        """Class token and patches, with position embeddings [batch, tokens, width]."""
        x = self.patches(images)
        if self.class_embedding is not None:
            x = torch.cat([self.class_embedding.expand(len(images), 1, -1), x], dim=1)
        return x + self.positional_embedding

    def embed(self, images: Tensor, prompts: Tensor | None) -> Tensor:
        """The input of block 0: class token, patches, prompts."""
        x = images if images.ndim == 3 else self.tokens(images)
        if prompts is not None:
            x = torch.cat([x, prompts[0].expand(len(images), -1, -1)], dim=1)
        return x if self.ln_pre is None else self.ln_pre(x)  # type: ignore[no-any-return]

    def block_inputs(self, images: Tensor, prompts: Tensor | None, layers: Sequence[int]) -> list[Tensor]:
        """The inputs of the given blocks; no block after the last of them is computed."""
        x, kept = self.embed(images, prompts), {}
        for index in range(max(layers) + 1):
            if (fresh := at_depth(prompts, index)) is not None:
                x = replace_tokens(x, fresh, self.image_tokens)
            kept[index] = x
            if index < max(layers):
                block = self.transformer.resblocks[index]
                assert isinstance(block, Block)
                x, rest = block.whole(x, block.ln_1(x), rotary=self.rotary)
                x = x + rest
        return [kept[layer] for layer in layers]

    def forward(
        self, images: Tensor, prompts: Tensor | None, layers: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Projected features [batch, embed] and the inputs of the given blocks [batch, tokens, width]."""
        x, rest, kept = self.transformer.run(
            self.embed(images, prompts),
            prompts,
            self.image_tokens,
            rotary=self.rotary,
            only=0 if self.pooling == "class" else None,
            layers=layers,
        )
        return self.project(self.pooled(x, rest)), kept

    def project(self, x: Tensor) -> Tensor:
        """Pooled tokens [..., width] → features [..., embed]."""
        if self.proj is not None:
            x = x @ self.proj
        return x if self.proj_bias is None else x + self.proj_bias

    def patch_features(self, images: Tensor) -> Tensor:
        """Every patch as if it were the class token [batch, patches, embed]."""
        x = self.embed(images, None)
        x, rest, _ = self.transformer.run(x, None, self.image_tokens, rotary=self.rotary)
        return self.project(add_norm(x, rest, self.ln_post)[1][:, self.first_patch :])

    def pooled(self, x: Tensor, rest: Tensor) -> Tensor:
        """Two summands of the last block's output → [batch, width]."""
        if self.pooling == "mean":  # of the patches, normalised afterwards
            patches = (x + rest)[:, self.first_patch : self.image_tokens]
            return self.ln_post(patches.mean(dim=1))  # type: ignore[no-any-return]
        _, normed = add_norm(x, rest, self.ln_post)
        return normed[:, 0] if self.pool is None else self.pool(normed[:, : self.image_tokens])


def unfold_patches(images: Tensor, size: int) -> Tensor:
    """[batch, channels, H, W] → [batch, patches, channels · size²], in the order a convolution reads them."""
    batch, channels, height, width = images.shape
    rows, columns = height // size, width // size
    grid = images[:, :, : rows * size, : columns * size].reshape(batch, channels, rows, size, columns, size)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * size * size)
