"""Class names + frozen CLIP + a family of prompts = a classifier. Tokens in, normalised features out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.model.clip import Clip, TextLayout, WholeTexts
from taps.model.prompts.families import FAMILIES, Parameters, PromptTokens


@dataclass(frozen=True)
class Classifier:
    """The part of a method that is constant over a stream.

    Attributes:
        clip: The frozen model.
        layout: Where the tokens of the class texts go; None for hand-written texts, which are encoded once.
        kind: Family of the prompts; None for hand-written texts.
        counts: Number of texts of each class, where one has several.
        features: Of hand-written texts [K, d].
    """

    clip: Clip
    layout: TextLayout | WholeTexts | None
    kind: str | None
    counts: tuple[int, ...] | None = None
    features: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Features are normalised and compared in float32, whatever the precision of the frozen weights."""
        return torch.float64 if self.clip.dtype == torch.float64 else torch.float32

    def tokens(self, parameters: Parameters) -> PromptTokens:
        return PromptTokens(None, None) if self.kind is None else FAMILIES[self.kind].tokens(parameters)

    def text(self, context: Tensor | None) -> Tensor:
        """Normalised features of the class texts [K, d]; [B, K, d] of contexts [depth, B, tokens, width]."""
        if self.layout is None:
            assert self.features is not None
            return self.features
        found = F.normalize(self.clip.encode_text(self.layout, context).to(self.dtype), dim=-1)
        return found if self.counts is None else class_means(found, self.counts)

    def image(self, images: Tensor, vision: Tensor | None) -> Tensor:
        """Normalised features of preprocessed images [N, d]; `vision` may differ from image to image."""
        features, _ = self.clip.encode_image_and_layers(images, vision)
        return F.normalize(features.to(self.dtype), dim=-1)

    def image_and_layers(
        self, images: Tensor, vision: Tensor | None, layers: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        features, kept = self.clip.encode_image_and_layers(images, vision, layers)
        return F.normalize(features.to(self.dtype), dim=-1), [layer.to(self.dtype) for layer in kept]

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scaled cosine similarities [..., N, K]."""
        return self.clip.scale.to(self.dtype) * images @ texts.mT


def class_means(features: Tensor, counts: Sequence[int]) -> Tensor:
    """Normalised means of normalised features, `counts` texts a class: [..., texts, d] → [..., K, d]."""
    parts = torch.split(features, list(counts), dim=-2)
    return F.normalize(torch.stack([part.mean(dim=-2) for part in parts], dim=-2), dim=-1)
