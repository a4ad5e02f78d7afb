"""R-TPT (Sheng et al., CVPR 2025): TPT on each view's own entropy; similar views weigh more."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.learning.losses import entropies
from taps.methods import EncodedImage, method, setting
from taps.methods.contexts import ContextSettings, ContextTuner


class RtptSettings(ContextSettings):
    """R-TPT's published values.

    Attributes:
        neighbours: A view's reliability is its mean cosine to so many of the views most like it.
        temperature: Of the views' weights.
    """

    neighbours: int = setting(20, at_least=1)
    temperature: float = setting(0.01, above=0)


@method("rtpt", RtptSettings, prompts="hand")
class Rtpt(ContextTuner):
    settings: RtptSettings

    def loss(self, seen: EncodedImage, text: Tensor) -> Tensor:
        return entropies(self.classifier.logits(seen.features[seen.chosen], text)).mean()

    def answer(self, seen: EncodedImage, text: Tensor) -> Tensor:
        return self.weights(seen.features) @ self.classifier.logits(seen.features, text)

    def weights(self, features: Tensor) -> Tensor:
        """Of the views, by their mean cosine to the most alike of the others [n]."""
        if len(features) == 1:
            return features.new_ones(1)
        alike = (features @ features.T).fill_diagonal_(-torch.inf)
        nearest = alike.topk(min(self.settings.neighbours, len(features) - 1), dim=1).values
        return torch.softmax(nearest.mean(dim=1) / self.settings.temperature, dim=0)
