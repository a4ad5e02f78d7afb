"""CLIP in plain torch: two frozen towers that take prompts as arguments and return features.

The modules keep no state. `taps.model.clip.transformer` defines prompts. SigLIP, CLIPA, EVA-CLIP and PE are
the same model under another `ClipConfig`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from taps.errors import PromptsError
from taps.model.clip.config import ClipConfig
from taps.model.clip.convolution import ConvNextTower, ConvolutionTower, FastVitTower, ResNetTower
from taps.model.clip.layout import TextLayout, WholeTexts, make_layout, token_rows, whole_texts
from taps.model.clip.ops import add_norm, replace_tokens
from taps.model.clip.tokenizer import CLIP_TOKENIZER, TextTokenizer
from taps.model.clip.transformer import Block, Embedding, Transformer, parameter
from taps.model.clip.vision import VisionTower

TOWERS: dict[str, Callable[[ClipConfig], VisionTower | ConvolutionTower]] = {
    "transformer": VisionTower,
    "resnet": ResNetTower,
    "convnext": ConvNextTower,
    "fastvit": FastVitTower,
}


class Clip(nn.Module):
    """A frozen CLIP. Text context and vision tokens are arguments of its two encoders.

    `fingerprint` names the weights, whatever their precision; prompts and source statistics record it.
    """

    def __init__(
        self, config: ClipConfig, fingerprint: str = "random", tokenizer: TextTokenizer = CLIP_TOKENIZER
    ) -> None:
        super().__init__()
        self.config = config
        self.fingerprint = fingerprint
        self.tokenizer = tokenizer
        self.source: str | None = None  # arguments of `load_clip`: a saved learner finds the model by them
        self.pretrained: str | None = None
        width = config.text_width
        self.visual = TOWERS[config.vision_tower](config)
        sizes = (width, config.text_heads, config.text_mlp, config.activation, config.text_eps)
        self.transformer = Transformer(Block(*sizes) for _ in range(config.text_layers))
        self.token_embedding = Embedding(config.vocab_size, width)
        self.positional_embedding = parameter(config.context_length, width)
        self.ln_final = nn.LayerNorm(width, eps=config.text_eps)
        self.text_projection = parameter(width, config.embed_dim) if config.text_projection else None
        self.text_projection_bias = parameter(config.embed_dim) if config.text_projection_bias else None
        # Numbers, not weights: they have values even on the meta device.
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07), device="cpu"))
        self.logit_bias = nn.Parameter(torch.tensor(-10.0, device="cpu")) if config.logit_bias else None
        self._set_pixel_statistics()
        self.requires_grad_(False)
        self.eval()

    def _apply(self, fn: Any, recurse: bool = True) -> Clip:
        """Move or convert as any module, but keep the logit scale and pixel statistics in full precision.

        In bfloat16 a logit scale of 100 becomes 99, and every entropy changes with it.
        """
        scale, bias = self.logit_scale.detach(), None if self.logit_bias is None else self.logit_bias.detach()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.logit_scale = nn.Parameter(scale.to(self.device, self._exact), requires_grad=False)
        if bias is not None:
            self.logit_bias = nn.Parameter(bias.to(self.device, self._exact), requires_grad=False)
        self._set_pixel_statistics()
        return self

    def _set_pixel_statistics(self) -> None:
        """Mean and standard deviation [3, 1, 1], and `levels`: every 8-bit pixel preprocessed [3, 256]."""
        # Computed on the host: a division must round alike for every device.
        mean, std = (
            torch.tensor(each, device="cpu", dtype=self._exact)[:, None]
            for each in (self.config.mean, self.config.std)
        )
        pixels = torch.arange(256, device="cpu", dtype=self._exact) / 255
        self.levels = ((pixels - mean) / std).to(self.device, self.dtype)
        self.mean, self.std = mean[..., None].to(self.device), std[..., None].to(self.device)

    @property
    def _exact(self) -> torch.dtype:
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def dtype(self) -> torch.dtype:
        return self.ln_final.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.ln_final.weight.device

    @property
    def scale(self) -> Tensor:
        """Logits are cosine similarities times this."""
        return self.logit_scale.exp()

    def preprocess(self, pixels: Tensor) -> Tensor:
        """Pixels in 0..255 (uint8 or float) [batch, 3, H, W] → normalised pixels."""
        pixels = pixels.to(self.device)
        if pixels.dtype == torch.uint8 and pixels.is_cuda:
            channel = torch.arange(3, device=self.device)[:, None, None]
            return self.levels[channel, pixels.long()]
        return ((pixels.to(self.mean.dtype) / 255 - self.mean) / self.std).to(self.dtype)

    def image_tokens(self, images: Tensor) -> Tensor:
        """Preprocessed images → tokens [batch, tokens, width], which the image encoders take as well."""
        return self.visual.tokens(images)

    def encode_image(self, images: Tensor, prompts: Tensor | None = None) -> Tensor:
        """Projected, un-normalised features of preprocessed images, or of their `image_tokens`."""
        return self.encode_image_and_layers(images, prompts)[0]

    def encode_image_and_layers(
        self, images: Tensor, prompts: Tensor | None = None, layers: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """`encode_image`, and the inputs of the given vision blocks."""
        images, prompts = self._vision_inputs(images, prompts)
        features, inputs = self.visual(images, prompts, layers)
        return features, inputs

    def image_layers(self, images: Tensor, prompts: Tensor | None, layers: Sequence[int]) -> list[Tensor]:
        """The inputs of the given vision blocks only; no later block is computed."""
        return self.visual.block_inputs(*self._vision_inputs(images, prompts), layers)

    def _vision_inputs(self, images: Tensor, prompts: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Images and prompts, checked, on the model's device and in its precision."""
        if prompts is not None and self.config.stages:
            raise PromptsError(
                f"The image tower of {self.config.name} is made of convolutions, which take no prompts; use "
                "prompts of the text tower alone (coop), or a model with a vision transformer."
            )
        _check_prompts(prompts, self.config.vision_width, self.config.vision_layers, "vision")
        images = images.to(device=self.device, dtype=self.dtype)
        return images, None if prompts is None else prompts.to(self.dtype)

    def text_layout(self, texts: Sequence[str], *, context: int = 0) -> TextLayout | WholeTexts:
        """Token ids of texts; `context` learned tokens follow the start marker, if any.

        In a causal tower the prefix that all texts share is computed once; in others, where a token sees
        the whole text and its padding, every text is run whole.
        """
        length, last = self.config.context_length, self.config.text_pool == "last"
        rows = token_rows(texts, context=context, limit=length, tokenizer=self.tokenizer)
        if self.config.causal and not last:
            return make_layout(rows, context=context).to(self.device)
        made = whole_texts(rows, context=context, tokenizer=self.tokenizer, length=length, last=last)
        return made.to(self.device)

    def encode_text(
        self, texts: Sequence[str] | TextLayout | WholeTexts, context: Tensor | None = None
    ) -> Tensor:
        """Projected, un-normalised features of texts.

        Args:
            texts: Strings, or their `text_layout` where they are encoded repeatedly.
            context: Learned tokens [depth, tokens, width] that stand after the start marker of every text. Of
                B contexts [depth, B, tokens, width] the features are [B, texts, d].
        """
        count = 0 if context is None else context.shape[-2]
        if not isinstance(texts, TextLayout | WholeTexts):
            texts = self.text_layout(texts, context=count)
        _check_prompts(context, self.config.text_width, self.config.text_layers, "text")
        if count != texts.context:
            raise PromptsError(
                f"The texts were laid out for {texts.context} context tokens, but {count} were given."
            )
        deep = None if context is None else context.to(self.dtype)
        x, rest = self._whole(texts, deep) if isinstance(texts, WholeTexts) else self._packed(texts, deep)
        x = add_norm(x, rest, self.ln_final)[1]
        if self.text_projection is not None:
            x = x @ self.text_projection
        return x if self.text_projection_bias is None else x + self.text_projection_bias

    def _whole(self, texts: WholeTexts, deep: Tensor | None) -> tuple[Tensor, Tensor]:
        """Every text with its padding: two summands of the pooled tokens [K, width]."""
        if deep is not None and deep.ndim == 4:  # long texts fill a device one context at a time
            summands = [self._whole(texts, one) for one in deep.unbind(1)]
            return torch.stack([x for x, _ in summands]), torch.stack([rest for _, rest in summands])
        x = self.token_embedding(texts.ids)
        if deep is not None:
            x = replace_tokens(x, deep[0], texts.first)
        x = x + self.positional_embedding
        x, rest, _ = self.transformer.run(x, deep, texts.first, only=texts.pooled)
        return x[:, 0], rest[:, 0]

    def _packed(self, texts: TextLayout, deep: Tensor | None) -> tuple[Tensor, Tensor]:
        """The shared prefix once and each text's own tokens: two summands of the end markers [K, width]."""
        shared = len(texts.prefix)
        x = self.token_embedding(torch.cat([texts.prefix, texts.own]))
        if deep is not None:
            x = replace_tokens(x.expand(*deep.shape[1:-2], -1, -1), deep[0], 1)
        x = x + torch.cat([self.positional_embedding[:shared], self.positional_embedding[texts.positions]])
        x, rest, _ = self.transformer.run(x, deep, 1, layout=texts)
        return x, rest


def _check_prompts(prompts: Tensor | None, width: int, layers: int, tower: str) -> None:
    if prompts is None:
        return
    shape = prompts.shape
    if prompts.ndim not in (3, 4) or shape[-1] != width or shape[-2] < 1 or not 1 <= shape[0] <= layers:
        raise PromptsError(
            f"The {tower} prompts have shape {tuple(shape)}; this model takes "
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
    """A CLIP whose weights have memory of the right precision, and no values yet."""
    with torch.device("meta"):
        clip = Clip(config, fingerprint, tokenizer)
    # `empty_like` of a meta tensor would import sympy, which takes a second.
    return clip._apply(lambda tensor: torch.empty(tensor.shape, device=device, dtype=dtype))


def count_parameters(config: ClipConfig) -> int:
    """The number of parameters of a model."""
    with torch.device("meta"):
        return sum(value.numel() for value in Clip(config).parameters())


def initialise(clip: Clip, generator: torch.Generator) -> Clip:
    """Fill a CLIP with random weights of the usual scale, drawn in single precision tensor by tensor."""
    norms = {f"{name}.weight" for name, part in clip.named_modules() if isinstance(part, nn.LayerNorm)}
    for name, value in clip.named_parameters():
        if name in norms:
            value.fill_(1.0)
        elif name.endswith("bias"):
            value.fill_(-10.0 if name == "logit_bias" else 0.0)
        elif name != "logit_scale":
            fan = value.shape[-1] if value.ndim > 1 else len(value)
            if value.ndim == 4 and name != "visual.conv1.weight":
                fan = value[0].numel()
            scale = 0.02 if "embedding" in name else fan**-0.5
            value.copy_(torch.randn(value.shape, generator=generator) * scale)
    return clip
