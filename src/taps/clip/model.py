"""CLIP in plain torch: two frozen towers whose prompts are arguments and whose features are return values.

Prompts are tensors [depth, tokens, width]: row 0 enters with the input, row j replaces the tokens that row
j − 1 left before block j (MaPLe's way). Where they differ from image to image they are [depth, batch, tokens,
width]; with a batch of text contexts all texts are encoded with each. Nothing is kept on the modules.

Its relatives (SigLIP, CLIPA, EVA-CLIP, PE) are the same model under another configuration: `ClipConfig` says
what pools the tokens, what a text token may see, and which small parts are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.clip.config import ClipConfig, TowerConfig
from taps.clip.convnext import ConvNextTower
from taps.clip.convolution import ConvolutionTower
from taps.clip.fastvit import FastVitTower
from taps.clip.layers import Attention, Conv, Embedding, GatedMlp, Mlp
from taps.clip.layout import TextLayout, WholeTexts, make_layout, token_rows, whole_texts
from taps.clip.ops import (
    add_norm,
    collect,
    embed_kernel,
    look_up_levels,
    replace_tokens,
    self_attention,
    text_attention,
)
from taps.clip.resnet import ResNetTower
from taps.clip.tokenizer import CLIP_TOKENIZER, TextTokenizer
from taps.errors import PromptsError

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
                x, normed = add_norm(x, rest, block.ln_1, _at_depth(prompts, index), first=first)
            if index in layers:
                kept[index] = x
            last = index == len(self.resblocks) - 1
            assert normed is not None
            x, rest = block.whole(x, normed, rotary=rotary, only=only if last else None)
        assert rest is not None
        return x, rest, [kept[layer] for layer in layers]


class MapPool(nn.Module):
    """Multi-head attention pooling: a learned query over the tokens, then a hidden layer."""

    def __init__(self, width: int, heads: int, hidden: int, activation: str, eps: float) -> None:
        super().__init__()
        self.probe = nn.Parameter(torch.empty(1, 1, width))
        self.attn = Attention(width, heads)
        self.ln = nn.LayerNorm(width, eps=eps)
        self.mlp = Mlp(width, hidden, activation)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [batch, tokens, width] → [batch, width]."""
        x = self.attn.out(self.attn.of(self.probe.expand(len(x), -1, -1), x))
        return (x + self.mlp(self.ln(x)))[:, 0]  # type: ignore[no-any-return]


class VisionTower(nn.Module):
    """Images → features. Prompts stand after the patches, before `ln_pre`, and are not pooled."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        width, eps = config.vision_width, config.vision_eps
        self.image_tokens, self.pooling = config.image_tokens, config.vision_pool
        self.stem = None
        channels, size = 3, config.patch_size
        if config.patch_stem:
            channels, size = width // 4, size // 8
            self.stem = nn.Sequential(Conv(3, channels, 4, stride=4), Conv(channels, channels, 2, stride=2))
        self.conv1 = Conv(channels, width, size, size, bias=config.patch_bias)
        self.class_embedding = nn.Parameter(torch.empty(width)) if config.class_token else None
        self.positional_embedding = nn.Parameter(torch.empty(config.image_tokens, width))
        self.ln_pre = nn.LayerNorm(width, eps=eps) if config.ln_pre else None
        self.transformer = Transformer(config.vision)
        self.ln_post = nn.LayerNorm(width, eps=eps)
        self.pool = None
        if config.vision_pool == "map":
            heads, hidden = config.pool_heads or config.vision_heads, config.pool_mlp or config.vision.mlp
            self.pool = MapPool(width, heads, hidden, config.activation, eps)
        self.proj = nn.Parameter(torch.empty(width, config.embed_dim)) if config.vision_projection else None
        biased = config.vision_projection and config.vision_projection_bias
        self.proj_bias = nn.Parameter(torch.empty(config.embed_dim)) if biased else None
        self.rotary = None if config.rotary == "none" else Rotary(config)

    def patches(self, images: Tensor) -> Tensor:
        """Embedded patches, without their places [batch, patches, width]."""
        for conv in self.stem or ():
            images = F.gelu(conv(images))
        patches = unfold_patches(images, self.conv1.kernel_size[0])
        return F.linear(patches, self.conv1.weight.flatten(1), self.conv1.bias)

    def tokens(self, images: Tensor) -> Tensor:
        """Class token and patches at their places: all that block 0 is told of an image."""
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

    def first_input(self, images: Tensor, prompts: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`embed`, and its layer norm in block 0 where one kernel makes both."""
        block = self.transformer.resblocks[0]
        assert isinstance(block, Block)
        plain = images.ndim == 3 or self.class_embedding is None or self.ln_pre is None
        if plain or not images.is_cuda or torch.is_grad_enabled() or images.dtype == torch.float64:
            return self.embed(images, prompts), None
        if (fused := embed_kernel(self.conv1.out_channels, images.dtype)) is None:
            return self.embed(images, prompts), None
        fresh = None if prompts is None else prompts[0]
        return fused(
            self.patches(images),
            self.class_embedding,
            self.positional_embedding,
            fresh,
            self.ln_pre,
            block.ln_1,
        )

    def block_inputs(self, images: Tensor, prompts: Tensor | None, layers: Sequence[int]) -> list[Tensor]:
        """The inputs of the named blocks; no block after the last named one is computed."""
        x, kept = self.embed(images, prompts), {}
        for index in range(max(layers) + 1):
            if (fresh := _at_depth(prompts, index)) is not None:
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
        """Projected features [batch, embed] and the inputs of the named blocks [batch, tokens, width]."""
        x, rest, kept = self.transformer.whole(
            *self.first_input(images, prompts),
            prompts,
            self.image_tokens,
            rotary=self.rotary,
            only=0 if self.pooling == "class" else None,
            layers=layers,
        )
        x = self.pooled(x, rest)
        if self.proj is not None:
            x = x @ self.proj
        return (x if self.proj_bias is None else x + self.proj_bias), kept

    def pooled(self, x: Tensor, rest: Tensor) -> Tensor:
        """Two summands of the last block's output → [batch, width]."""
        if self.pooling == "mean":  # of the patches, normalised afterwards
            first = 0 if self.class_embedding is None else 1
            patches = (x + rest)[:, first : self.image_tokens]
            return self.ln_post(patches.mean(dim=1))  # type: ignore[no-any-return]
        _, normed = add_norm(x, rest, self.ln_post)
        return normed[:, 0] if self.pool is None else self.pool(normed[:, : self.image_tokens])


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


def _at_depth(prompts: Tensor | None, index: int) -> Tensor | None:
    """The prompts that enter before block `index`, where it is not the first."""
    return prompts[index] if prompts is not None and 0 < index < len(prompts) else None


def unfold_patches(images: Tensor, size: int) -> Tensor:
    """[batch, channels, H, W] → [batch, patches, channels · size²], in the order a convolution reads them."""
    batch, channels, height, width = images.shape
    rows, columns = height // size, width // size
    grid = images[:, :, : rows * size, : columns * size].reshape(batch, channels, rows, size, columns, size)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * size * size)


TOWERS: dict[str, Callable[[ClipConfig], VisionTower | ConvolutionTower]] = {
    "transformer": VisionTower,
    "resnet": ResNetTower,
    "convnext": ConvNextTower,
    "fastvit": FastVitTower,
}


class Clip(nn.Module):
    """A frozen CLIP. Text context and vision tokens are arguments of its two encoders.

    Args:
        config: What it is made of.
        fingerprint: Names the weights, whatever their precision; prompts and statistics record it.
        tokenizer: Turns texts into token ids; CLIP's own unless given.

    Attributes:
        source: What it was loaded by, if by `load_clip`; a saved learner finds it again.
        pretrained: The weights asked for then.
    """

    mean: Tensor
    std: Tensor
    levels: Tensor  # every 8-bit pixel preprocessed [3, 256]

    def __init__(
        self, config: ClipConfig, fingerprint: str = "random", tokenizer: TextTokenizer = CLIP_TOKENIZER
    ) -> None:
        super().__init__()
        self.config = config
        self.fingerprint = fingerprint
        self.tokenizer = tokenizer
        self.source: str | None = None
        self.pretrained: str | None = None
        width = config.text_width
        self.visual = TOWERS[config.vision_tower](config)
        self.transformer = Transformer(config.text)
        self.token_embedding = Embedding(config.vocab_size, width)
        self.positional_embedding = nn.Parameter(torch.empty(config.context_length, width))
        self.ln_final = nn.LayerNorm(width, eps=config.text_eps)
        self.text_projection = (
            nn.Parameter(torch.empty(width, config.embed_dim)) if config.text_projection else None
        )
        self.text_projection_bias = (
            nn.Parameter(torch.empty(config.embed_dim)) if config.text_projection_bias else None
        )
        # Numbers, not weights: they are there even where weights are only shapes.
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07), device="cpu"))
        self.logit_bias = nn.Parameter(torch.tensor(-10.0, device="cpu")) if config.logit_bias else None
        self.register_buffer("mean", torch.tensor(config.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(config.std)[:, None, None], persistent=False)
        self.register_buffer("levels", self._all_levels(), persistent=False)
        self.requires_grad_(False)
        self.eval()

    def _apply(self, fn: Any, recurse: bool = True) -> Clip:
        """Move or convert as any module, but keep in full precision the few numbers that halves would spoil.

        In bfloat16 a logit scale of 100 becomes 99, and every entropy with it.
        """
        scale, bias = self.logit_scale.detach(), None if self.logit_bias is None else self.logit_bias.detach()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        exact = torch.float64 if self.dtype == torch.float64 else torch.float32
        self.logit_scale = nn.Parameter(scale.to(self.device, exact), requires_grad=False)
        if bias is not None:
            self.logit_bias = nn.Parameter(bias.to(self.device, exact), requires_grad=False)
        self.mean = torch.tensor(self.config.mean, device=self.device, dtype=exact)[:, None, None]
        self.std = torch.tensor(self.config.std, device=self.device, dtype=exact)[:, None, None]
        self.levels = self._all_levels()
        return self

    @property
    def dtype(self) -> torch.dtype:
        return self.ln_final.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.ln_final.weight.device

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
        self._check_vision(prompts)
        images = images.to(device=self.device, dtype=self.dtype)
        features, kept = self.visual(images, None if prompts is None else prompts.to(self.dtype), layers)
        return features, kept

    def image_layers(self, images: Tensor, prompts: Tensor | None, layers: Sequence[int]) -> list[Tensor]:
        """The inputs of the named vision blocks alone, stopping after the last of them."""
        self._check_vision(prompts)
        images = images.to(device=self.device, dtype=self.dtype)
        return self.visual.block_inputs(images, None if prompts is None else prompts.to(self.dtype), layers)

    def _check_vision(self, prompts: Tensor | None) -> None:
        if prompts is not None and self.config.stages:
            raise PromptsError(
                f"The image tower of {self.config.name} is made of convolutions, which take no prompts; use "
                "prompts of the text tower alone (coop), or a model with a vision transformer."
            )
        _check_prompts(prompts, self.config.vision_width, self.config.vision_layers, "vision")

    def text_layout(self, texts: Sequence[str], *, context: int = 0) -> TextLayout | WholeTexts:
        """Where the tokens of these texts go; `context` learned tokens follow the start marker, if any.

        What all texts begin with is computed once where a token sees nothing behind it; elsewhere it sees
        each text's own tokens and the padding, and every text is run whole.
        """
        rows = token_rows(texts, context=context, limit=self.config.context_length, tokenizer=self.tokenizer)
        if self.config.causal and self.config.text_pool == "end":
            return make_layout(rows, context=context).to(self.device)
        last = self.config.text_pool == "last"
        made = whole_texts(
            rows, context=context, tokenizer=self.tokenizer, length=self.config.context_length, last=last
        )
        return made.to(self.device)

    def encode_text(
        self, texts: Sequence[str] | TextLayout | WholeTexts, context: Tensor | None = None
    ) -> Tensor:
        """Projected, un-normalised features of texts.

        Args:
            texts: Strings, or a layout made once for strings that are encoded again and again.
            context: Learned tokens [depth, tokens, width] that stand after the start marker of every text. Of
                B contexts [depth, B, tokens, width] the features are [B, texts, d].
        """
        if not isinstance(texts, TextLayout | WholeTexts):
            texts = self.text_layout(texts, context=0 if context is None else context.shape[-2])
        _check_prompts(context, self.config.text_width, self.config.text_layers, "text")
        if (0 if context is None else context.shape[-2]) != texts.context:
            raise PromptsError(
                f"The texts were laid out for {texts.context} context tokens, but "
                f"{0 if context is None else context.shape[-2]} were given."
            )
        deep = None if context is None else context.to(self.dtype)
        x, rest = self._whole(texts, deep) if isinstance(texts, WholeTexts) else self._packed(texts, deep)
        x = add_norm(x, rest, self.ln_final)[1]
        if self.text_projection is not None:
            x = x @ self.text_projection
        return x if self.text_projection_bias is None else x + self.text_projection_bias

    def _whole(self, texts: WholeTexts, deep: Tensor | None) -> tuple[Tensor, Tensor]:
        """Every text with its padding; two summands of its pooled token [K, width]."""
        if deep is not None and deep.ndim == 4:  # long texts fill a device one context at a time
            summands = [self._whole(texts, one) for one in deep.unbind(1)]
            return torch.stack([x for x, _ in summands]), torch.stack([rest for _, rest in summands])
        x = self.token_embedding(texts.ids)
        if deep is not None:
            x = replace_tokens(x, deep[0], texts.first)
        x, rest, _ = self.transformer.whole(
            x + self.positional_embedding, None, deep, texts.first, only=texts.pooled
        )
        return x[:, 0], rest[:, 0]

    def _packed(self, texts: TextLayout, deep: Tensor | None) -> tuple[Tensor, Tensor]:
        """The shared prefix once and each text's own tokens; two summands of the end markers [K, width]."""
        shared = len(texts.prefix)
        x = self.token_embedding(torch.cat([texts.prefix, texts.own]))
        if deep is not None:
            x = replace_tokens(x.expand(*deep.shape[1:-2], -1, -1), deep[0], 1)
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
        return x, rest


def _check_prompts(prompts: Tensor | None, width: int, layers: int, tower: str) -> None:
    if prompts is None:
        return
    if (
        prompts.ndim not in (3, 4)
        or prompts.shape[-1] != width
        or prompts.shape[-2] < 1
        or not 1 <= prompts.shape[0] <= layers
    ):
        raise PromptsError(
            f"The {tower} prompts have shape {tuple(prompts.shape)}; this model takes "
            f"[depth of 1 to {layers}, tokens, {width}]."
        )


def unfilled(
    config: ClipConfig,
    *,
    fingerprint: str = "random",
    tokenizer: TextTokenizer = CLIP_TOKENIZER,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Clip:
    """A CLIP whose weights have their place and precision at once, and no values yet."""
    with torch.device("meta"):
        clip = Clip(config, fingerprint, tokenizer)
    # Not by `empty_like`: of a tensor without data that imports sympy, which takes a second.
    return clip._apply(lambda tensor: torch.empty(tensor.shape, device=device, dtype=dtype))


def count_parameters(config: ClipConfig) -> int:
    """How many numbers the weights of a model are."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Clip(config).parameters())


def initialise(clip: Clip, generator: torch.Generator) -> Clip:
    """Fill a CLIP with random weights of the usual scale; the same generator gives the same weights.

    They are drawn in single precision, one tensor after the other, whatever the model's own.
    """
    norms = {f"{name}.weight" for name, part in clip.named_modules() if isinstance(part, nn.LayerNorm)}
    for name, parameter in clip.named_parameters():
        if name in norms:
            parameter.fill_(1.0)
        elif name.endswith("bias"):
            parameter.fill_(-10.0 if name == "logit_bias" else 0.0)
        elif name != "logit_scale":
            fan = parameter.shape[-1] if parameter.ndim > 1 else len(parameter)
            if parameter.ndim == 4 and name != "visual.conv1.weight":
                fan = parameter[0].numel()
            scale = 0.02 if "embedding" in name else fan**-0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return clip
