"""ProLIP (Fahes et al., WACV 2026): a matrix on the image feature, penalised by ‖A − I‖²."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import method, setting
from taps.rivals.stepwise import Stepwise, StepwiseSettings


class ProLipSettings(StepwiseSettings):
    """The middle of the learning rates that its authors find alike."""

    lr: float = setting(1e-4, above=0)


@method("prolip", ProLipSettings)
class ProLip(Stepwise):
    settings: ProLipSettings
    eps = 1e-4  # in its authors' code; a first gradient near 0 is no reason for a whole step

    def weights(self) -> Tensor:
        return torch.eye(self.text.shape[1], dtype=self.text.dtype, device=self.text.device)

    def classify(self, weights: Tensor, features: Tensor) -> Tensor:
        return self.logits(F.normalize(features @ weights, dim=-1))

    def loss(self, weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        shots = len(labels) / int(torch.bincount(labels).count_nonzero())
        moved = (weights - self.weights()).square().sum()
        return F.cross_entropy(self.classify(weights, features), labels) + moved / shots**2
