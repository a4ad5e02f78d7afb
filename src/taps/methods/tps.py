"""TPS: a shift of each class's text feature takes TPT's step in the place of the prompt."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.adapt.losses import mean_log_probs
from taps.methods.features import FeatureMethod, Seen, first_step, through_unit
from taps.methods.ranges import setting
from taps.methods.registry import method
from taps.methods.settings import ViewSettings


@dataclass(frozen=True)
class TpsSettings(ViewSettings):
    """TPS's published values, those for ImageNet and its relatives.

    Attributes:
        lr: Learning rate of AdamW; its weight decay takes nothing off a shift that begins at zero.
    """

    lr: float = setting(5e-3, at_least=0)


@method("tps", TpsSettings)
class Tps(FeatureMethod):
    """One entropy step on a shift of each class's text feature."""

    settings: TpsSettings

    def adapt(self, seen: Seen) -> Tensor:
        gradient = self.gradient(seen.features[seen.chosen], seen.logits[seen.chosen])
        (step,), self.updated = first_step([gradient], self.settings.lr)
        texts = F.normalize(self.text - step, dim=-1)
        return self.classifier.logits(seen.features[:1], texts)[0]

    def gradient(self, features: Tensor, logits: Tensor) -> Tensor:
        """Of the entropy of the views' mean prediction, by the shift [K, d].

        Written out: with p̄ the mean of the views' p_i, ∂H/∂z_ik = p_ik (a_k − Σ_j p_ij a_j) / n, where
        a_k = −ln p̄_k; the constant of −(1 + ln p̄_k) falls out.
        """
        probs = torch.softmax(logits, dim=-1)
        weights = -mean_log_probs(logits).clamp_min(torch.finfo(logits.dtype).min)
        by_logit = probs * (weights - (probs @ weights)[:, None]) / len(probs)
        by_text = float(self.classifier.clip.scale) * by_logit.T @ features
        return through_unit(by_text, self.text, self.text)
