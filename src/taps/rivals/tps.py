"""TPS (Sui et al., 2024): TPT's entropy step on a shift of each class's text feature."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from taps.methods import EncodedImage, FeatureMethod, ViewSettings, method, setting
from taps.methods.features import entropy_gradient, first_step, through_unit


class TpsSettings(ViewSettings):
    """TPS's for ImageNet and its relatives. AdamW's weight decay does nothing to a shift from zero."""

    lr: float = setting(5e-3, at_least=0)


@method("tps", TpsSettings)
class Tps(FeatureMethod):
    settings: TpsSettings
    stateless = True

    def adapt(self, seen: EncodedImage) -> Tensor:
        gradient = self.gradient(seen.features[seen.chosen], seen.logits[seen.chosen])
        (step,), self.updated = first_step([gradient], self.settings.lr)
        texts = F.normalize(self.text - step, dim=-1)
        return self.classifier.logits(seen.features[:1], texts)[0]

    def gradient(self, features: Tensor, logits: Tensor) -> Tensor:
        """Of the entropy of the views' mean prediction, by the shift [K, d]."""
        by_text = float(self.classifier.clip.scale) * entropy_gradient(logits).T @ features
        return through_unit(by_text, self.text, self.text)
