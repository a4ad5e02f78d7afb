"""Cross-modal probe (Lin et al., CVPR 2023): a linear classifier of labelled images and class texts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import method, setting
from taps.rivals.stepwise import Stepwise, StepwiseSettings


class CrossModalSettings(StepwiseSettings):
    """The first values of its authors' search."""

    lr: float = setting(1e-3, above=0)
    weight_decay: float = setting(0.01, at_least=0)


@method("cross_modal", CrossModalSettings)
class CrossModal(Stepwise):
    settings: CrossModalSettings

    def weights(self) -> Tensor:
        return self.text.clone()

    def classify(self, weights: Tensor, features: Tensor) -> Tensor:
        return self.classifier.logits(features, weights)

    def loss(self, weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        both = torch.cat([features, self.text])
        targets = torch.cat([labels, torch.arange(len(self.text), device=labels.device)])
        return F.cross_entropy(self.classify(weights, both), targets)
