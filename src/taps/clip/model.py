"""CLIP in plain torch: two frozen towers whose prompts are arguments and whose features are return values.

Prompts are tensors [depth, tokens, width]: row 0 enters with the input, row j replaces the tokens that row
j − 1 left before block j (MaPLe's way). Nothing is kept on the modules between calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.clip.config import ClipConfig
from taps.clip.layout import TextLayout, make_layout, token_rows
from taps.clip.ops import (
    ACTIVATION,
    add_norm,
    collect,
    look_up_levels,
    replace_tokens,
    self_attention,
    text_attention,
)
from taps.errors import PromptsError


class Linear(nn.Linear):
    """Left unfilled when made: the weights come from a file, and random ones would cost seconds."""

    def reset_parameters(self) -> None:
        pass


class Embedding(nn.Embedding):
    """Left unfilled, for the same reason."""

    def reset_parameters(self) -> None:
        pass


class Attention(nn.Module):
    """The weights of multi-head attention, in the layout of OpenAI's checkpoints."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = Linear(width, width)

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values side by side [..., 3 · width]."""
        return F.linear(x, self.in_proj_weight, self.in_proj_bias)

    def split(self, x: Tensor) -> Tensor:
        """[batch, tokens, width] → [batch, heads, tokens, width / heads]."""
        return x.view(*x.shape[:-1], self.heads, -1).transpose(1, 2)


class Mlp(nn.Module):
    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.c_fc = Linear(width, 4 * width)
        self.c_proj = Linear(4 * width, width)
        self.activation = ACTIVATION[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.activation(self.c_fc(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """One pre-norm transformer block, on whole sequences (vision) or on prefix + packed tokens (text).

    Its result is left as two summands, so that the addition can be done together with the next layer norm.
    """

    def __init__(self, width: int, heads: int, activation: str) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, activation)

    def forward(self, x: Tensor) -> Tensor:
        """Full attention over [batch, tokens, width]."""
        x, rest = self.whole(x, self.ln_1(x))
        return x + rest

    def whole(self, x: Tensor, normed: Tensor, *, first_only: bool = False) -> tuple[Tensor, Tensor]:
        """Full attention over [batch, tokens, width]; `first_only` computes the output of token 0 alone.

        Args:
            x: Input of the block.
            normed: Its layer norm by `ln_1`.
            first_only: Whether the other tokens' outputs are read by nobody.

        Returns:
            Two summands of the output.
        """
        attn = self.attn
        if first_only:
            width = x.shape[-1]
            q = F.linear(normed[:, :1], attn.in_proj_weight[:width], attn.in_proj_bias[:width])
            k, v = F.linear(normed, attn.in_proj_weight[width:], attn.in_proj_bias[width:]).chunk(2, dim=-1)
            seen = F.scaled_dot_product_attention(attn.split(q), attn.split(k), attn.split(v))
            x, seen = x[:, :1], seen.transpose(1, 2).flatten(2)
        else:
            seen = self_attention(attn.project(normed), attn.heads)
        x, normed = add_norm(x, attn.out_proj(seen), self.ln_2)
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
        x, normed = add_norm(x, attn.out_proj(seen), self.ln_2)
        return x, self.mlp(normed)


class Transformer(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, activation: str) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList([Block(width, heads, activation) for _ in range(layers)])


class VisionTower(nn.Module):
    """Images → features. Prompts stand after the patches, before `ln_pre`."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        width = config.vision_width
        self.patch_size = config.patch_size
        self.conv1 = nn.Conv2d(3, width, config.patch_size, config.patch_size, bias=False)
        self.class_embedding = nn.Parameter(torch.empty(width))
        self.positional_embedding = nn.Parameter(torch.empty(config.patches + 1, width))
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = Transformer(width, config.vision_layers, config.vision_heads, config.activation)
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(torch.empty(width, config.embed_dim))

    def tokens(self, images: Tensor) -> Tensor:
        """Class token and patches at their places: all that block 0 is told of an image."""
        patches = F.linear(unfold_patches(images, self.patch_size), self.conv1.weight.flatten(1))
        first = self.class_embedding.expand(len(images), 1, -1)
        return torch.cat([first, patches], dim=1) + self.positional_embedding

    def embed(self, images: Tensor, prompts: Tensor | None) -> Tensor:
        """The input of block 0: class token, patches, prompts."""
        x = images if images.ndim == 3 else self.tokens(images)
        if prompts is not None:
            x = torch.cat([x, prompts[0].expand(len(images), -1, -1)], dim=1)
        return self.ln_pre(x)  # type: ignore[no-any-return]

    def block_inputs(self, images: Tensor, prompts: Tensor | None, layers: Sequence[int]) -> list[Tensor]:
        """The inputs of the named blocks; no block after the last named one is computed."""
        x, kept = self.embed(images, prompts), {}
        for index in range(max(layers) + 1):
            if (fresh := _at_depth(prompts, index)) is not None:
                x = replace_tokens(x, fresh, x.shape[1] - len(fresh))
            kept[index] = x
            if index < max(layers):
                x = self.transformer.resblocks[index](x)
        return [kept[layer] for layer in layers]

    def forward(
        self, images: Tensor, prompts: Tensor | None, layers: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Projected features [batch, embed] and the inputs of the named blocks [batch, tokens, width]."""
        x, kept = self.embed(images, prompts), {}
        rest = None
        blocks = self.transformer.resblocks
        for index, block in enumerate(blocks):
            assert isinstance(block, Block)
            if rest is None:
                normed = block.ln_1(x)
            else:
                fresh = _at_depth(prompts, index)
                first = 0 if fresh is None else x.shape[1] - len(fresh)
                x, normed = add_norm(x, rest, block.ln_1, fresh, first=first)
            if index in layers:
                kept[index] = x
            x, rest = block.whole(x, normed, first_only=index == len(blocks) - 1)
        assert rest is not None
        _, normed = add_norm(x, rest, self.ln_post)
        return normed[:, 0] @ self.proj, [kept[layer] for layer in layers]


def _at_depth(prompts: Tensor | None, index: int) -> Tensor | None:
    """The prompts that enter before block `index`, where it is not the first."""
    return prompts[index] if prompts is not None and 0 < index < len(prompts) else None


def unfold_patches(images: Tensor, size: int) -> Tensor:
    """[batch, 3, H, W] → [batch, patches, 3 · size²], in the order a convolution reads them."""
    batch, channels, height, width = images.shape
    grid = images.reshape(batch, channels, height // size, size, width // size, size)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * size * size)


class Clip(nn.Module):
    """A frozen CLIP. Text context and vision tokens are arguments of its two encoders.

    Args:
        config: Sizes of both towers.
        fingerprint: Names the weights, whatever their precision; prompts and statistics record it.

    Attributes:
        source: What it was loaded by, if by `load_clip`; a saved learner finds it again.
        pretrained: The weights asked for then.
    """

    mean: Tensor
    std: Tensor
    levels: Tensor  # every 8-bit pixel preprocessed [3, 256]

    def __init__(self, config: ClipConfig, fingerprint: str = "random") -> None:
        super().__init__()
        self.config = config
        self.fingerprint = fingerprint
        self.source: str | None = None
        self.pretrained: str | None = None
        width = config.text_width
        self.visual = VisionTower(config)
        self.transformer = Transformer(width, config.text_layers, config.text_heads, config.activation)
        self.token_embedding = Embedding(config.vocab_size, width)
        self.positional_embedding = nn.Parameter(torch.empty(config.context_length, width))
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.empty(width, config.embed_dim))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.register_buffer("mean", torch.tensor(config.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(config.std)[:, None, None], persistent=False)
        self.register_buffer("levels", self._all_levels(), persistent=False)
        self.requires_grad_(False)
        self.eval()

    def _apply(self, fn: Any, recurse: bool = True) -> Clip:
        """Move or convert as any module, but keep in full precision the few numbers that halves would spoil.

        In bfloat16 a logit scale of 100 becomes 99, and every entropy with it.
        """
        scale = self.logit_scale.detach()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        exact = torch.float64 if self.dtype == torch.float64 else torch.float32
        self.logit_scale = nn.Parameter(scale.to(self.device, exact), requires_grad=False)
        self.mean = torch.tensor(self.config.mean, device=self.device, dtype=exact)[:, None, None]
        self.std = torch.tensor(self.config.std, device=self.device, dtype=exact)[:, None, None]
        self.levels = self._all_levels()
        return self

    @property
    def dtype(self) -> torch.dtype:
        return self.text_projection.dtype

    @property
    def device(self) -> torch.device:
        return self.text_projection.device

    @property
    def scale(self) -> Tensor:
        """What cosine similarities are multiplied with to become logits."""
        return self.logit_scale.exp()

    def preprocess(self, pixels: Tensor) -> Tensor:
        """Pixels in 0..255 (uint8 or float) [batch, 3, H, W] → what the vision tower was trained on."""
        pixels = pixels.to(self.device)
        if pixels.dtype == torch.uint8 and pixels.is_cuda:
            return look_up_levels(pixels, self.levels)
        return self._normalise(pixels)

    def _normalise(self, pixels: Tensor) -> Tensor:
        return ((pixels.to(self.mean.dtype) / 255 - self.mean) / self.std).to(self.dtype)

    def _all_levels(self) -> Tensor:
        # Made on the host, where a division rounds as on any other: the same numbers on every device.
        pixels = torch.arange(256, device="cpu", dtype=self.mean.dtype) / 255
        mean, std = (
            torch.tensor(each, device="cpu", dtype=self.mean.dtype)[:, None]
            for each in (self.config.mean, self.config.std)
        )
        return ((pixels - mean) / std).to(self.device, self.dtype)

    def image_tokens(self, images: Tensor) -> Tensor:
        """Preprocessed images → tokens [batch, tokens, width], which every encoder takes in their place."""
        return self.visual.tokens(images)

    def encode_image(self, images: Tensor, prompts: Tensor | None = None) -> Tensor:
        """Projected, un-normalised features of preprocessed images, or of their `image_tokens`."""
        return self.encode_image_and_layers(images, prompts)[0]

    def encode_image_and_layers(
        self, images: Tensor, prompts: Tensor | None = None, layers: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """`encode_image`, and the inputs of the named vision blocks beside it."""
        _check_prompts(prompts, self.config.vision_width, self.config.vision_layers, "vision")
        images = images.to(device=self.device, dtype=self.dtype)
        features, kept = self.visual(images, None if prompts is None else prompts.to(self.dtype), layers)
        return features, kept

    def image_layers(self, images: Tensor, prompts: Tensor | None, layers: Sequence[int]) -> list[Tensor]:
        """The inputs of the named vision blocks alone, stopping after the last of them."""
        _check_prompts(prompts, self.config.vision_width, self.config.vision_layers, "vision")
        images = images.to(device=self.device, dtype=self.dtype)
        return self.visual.block_inputs(images, None if prompts is None else prompts.to(self.dtype), layers)

    def text_layout(self, texts: Sequence[str], *, context: int = 0) -> TextLayout:
        """Where the tokens of these texts go; `context` learned tokens follow the start marker."""
        rows = token_rows(texts, context=context, limit=self.config.context_length)
        return make_layout(rows, context=context).to(self.device)

    def encode_text(self, texts: Sequence[str] | TextLayout, context: Tensor | None = None) -> Tensor:
        """Projected, un-normalised features of texts.

        Args:
            texts: Strings, or a layout made once for strings that are encoded again and again.
            context: Learned tokens [depth, tokens, width] that stand after the start marker of every text.
        """
        if not isinstance(texts, TextLayout):
            texts = self.text_layout(texts, context=0 if context is None else context.shape[1])
        _check_prompts(context, self.config.text_width, self.config.text_layers, "text")
        if (0 if context is None else context.shape[1]) != texts.context:
            raise PromptsError(
                f"The texts were laid out for {texts.context} context tokens, but "
                f"{0 if context is None else context.shape[1]} were given."
            )
        deep = None if context is None else context.to(self.dtype)
        shared = len(texts.prefix)
        x = self.token_embedding(torch.cat([texts.prefix, texts.own]))
        if deep is not None:
            x = replace_tokens(x, deep[0], 1)
        x = x + torch.cat([self.positional_embedding[:shared], self.positional_embedding[texts.positions]])
        rest = None
        blocks = self.transformer.resblocks
        for index, block in enumerate(blocks):
            assert isinstance(block, Block)
            if rest is None:
                normed = block.ln_1(x)
            else:
                x, normed = add_norm(x, rest, block.ln_1, _at_depth(deep, index), first=1)
            x, rest = block.causal(x, normed, texts, last=index == len(blocks) - 1)
        assert rest is not None
        return add_norm(x, rest, self.ln_final)[1] @ self.text_projection


def _check_prompts(prompts: Tensor | None, width: int, layers: int, tower: str) -> None:
    if prompts is None:
        return
    if (
        prompts.ndim != 3
        or prompts.shape[2] != width
        or prompts.shape[1] < 1
        or not 1 <= prompts.shape[0] <= layers
    ):
        raise PromptsError(
            f"The {tower} prompts have shape {tuple(prompts.shape)}; this model takes "
            f"[depth of 1 to {layers}, tokens, {width}]."
        )


def initialise(clip: Clip, generator: torch.Generator) -> Clip:
    """Fill a CLIP with random weights of the usual scale; the same generator gives the same weights."""
    for name, parameter in clip.named_parameters():
        if name.endswith(
            ("ln_1.weight", "ln_2.weight", "ln_pre.weight", "ln_post.weight", "ln_final.weight")
        ):
            parameter.fill_(1.0)
        elif name.endswith("bias"):
            parameter.zero_()
        elif name != "logit_scale":
            fan = parameter.shape[-1] if parameter.ndim > 1 else len(parameter)
            scale = 0.02 if "embedding" in name else fan**-0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return clip
