"""TPS: a shift of each class's text feature takes TPT's step in the place of the prompt."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.adapt.losses import mean_entropy
from taps.adapt.optimiser import adamw, fresh_moments
from taps.methods.features import FeatureMethod, Seen
from taps.methods.ranges import setting
from taps.methods.registry import method
from taps.methods.settings import ViewSettings


@dataclass(frozen=True)
class TpsSettings(ViewSettings):
    """TPS's published values, those for ImageNet and its relatives.

    Attributes:
        lr: Learning rate.
        weight_decay: Of AdamW.
    """

    lr: float = setting(5e-3, at_least=0)
    weight_decay: float = setting(0.01, at_least=0)


@method("tps", TpsSettings)
class Tps(FeatureMethod):
    """One entropy step on a shift of each class's text feature."""

    settings: TpsSettings

    def adapt(self, seen: Seen) -> Tensor:
        start = {"shift": torch.zeros_like(self.text)}
        with torch.enable_grad():
            shift = start["shift"].clone().requires_grad_()
            loss = mean_entropy(self.shifted(seen.features[seen.chosen], shift))
            (gradient,) = torch.autograd.grad(loss, shift)
        end, _, taken = adamw(
            start,
            {"shift": gradient},
            fresh_moments(start),
            lr=self.settings.lr,
            weight_decay=self.settings.weight_decay,
        )
        self.updated = bool(taken)
        return self.shifted(seen.features[:1], end["shift"])[0]

    def shifted(self, features: Tensor, shift: Tensor) -> Tensor:
        """Logits where the texts are shifted [n, K]."""
        return self.classifier.logits(features, F.normalize(self.text + shift, dim=-1))
