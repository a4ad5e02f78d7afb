"""CLAP (Silva-Rodríguez et al., CVPR 2024): class weights with a penalty λ_k‖w_k − t_k‖² of their own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import method, setting
from taps.rivals.stepwise import Stepwise, StepwiseSettings

MOMENTUM = 0.9


class ClapSettings(StepwiseSettings):
    """CLAP's learning rate; it has no value to search.

    Attributes:
        length: Of a class's weights at the start. The authors begin with text features as the model gives
            them, before they are brought to length 1: the longer, the less a step turns them.
    """

    lr: float = setting(0.1, above=0)
    length: float = setting(10.0, above=0)


@method("clap", ClapSettings)
class Clap(Stepwise):
    settings: ClapSettings

    def weights(self) -> Tensor:
        return self.settings.length * self.text

    def classify(self, weights: Tensor, features: Tensor) -> Tensor:
        return self.classifier.logits(features, F.normalize(weights, dim=-1))

    def loss(self, weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        moved = (weights - self.weights()).square().sum(dim=-1)
        held_back = (self.hold(features, labels) * moved).mean()
        return F.cross_entropy(self.classify(weights, features), labels) + held_back

    @torch.no_grad()
    def hold(self, features: Tensor, labels: Tensor) -> Tensor:
        """λ [K]: a class's mean zero-shot probability on its own labelled images; 1 where it has none."""
        own = torch.softmax(self.logits(features), dim=-1).gather(1, labels[:, None])[:, 0]
        counts = torch.bincount(labels, minlength=len(self.text))
        sums = own.new_zeros(len(counts)).index_add(0, labels, own)
        return torch.where(counts > 0, sums / counts.clamp_min(1), 1.0)

    def step(self, gradient: Tensor) -> None:
        """SGD with momentum, as its authors train."""
        decayed = gradient + self.settings.weight_decay * self.state["weights"]
        speed = MOMENTUM * self.state["first"] + decayed
        self.state |= {"first": speed, "weights": self.state["weights"] - self.settings.lr * speed}
