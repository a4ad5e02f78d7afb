"""CLIP in plain torch: two frozen towers whose prompts are arguments and whose features are return values.

Nothing is kept on the modules. `taps.clip.transformer` says what prompts are; with a batch of text contexts
all texts are encoded with each.

Its relatives (SigLIP, CLIPA, EVA-CLIP, PE) are the same model under another configuration: `ClipConfig` says
what pools the tokens, what a text token may see, and which small parts are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from taps.clip.config import ClipConfig
from taps.clip.convolution import ConvNextTower, ConvolutionTower, FastVitTower, ResNetTower
from taps.clip.layout import TextLayout, WholeTexts, make_layout, token_rows, whole_texts
from taps.clip.ops import add_norm, look_up_levels, replace_tokens
from taps.clip.tokenizer import CLIP_TOKENIZER, TextTokenizer
from taps.clip.transformer import Block, Embedding, Transformer, at_depth
from taps.clip.vision import VisionTower
from taps.errors import PromptsError
from taps.stages import stage

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
        with stage("encode"):
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
                x, normed = add_norm(x, rest, block.ln_1, at_depth(deep, index), first=1)
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
