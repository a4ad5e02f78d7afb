"""EATTA (CVPR 2025): asks where feature noise changes the prediction; balances answers and entropy."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.asking.rules import RULES
from taps.learning.losses import entropies
from taps.methods import MethodOutput, ReplayItem, State, method, setting
from taps.rivals.stepwise import RecentImagesMethod, RecentSettings, gradient_of

KEEP = 0.8  # of the running norms of the two gradients


class EattaSettings(RecentSettings):
    """EATTA's but for the learning rate; entropy is minimised where it is below `sure_below` · ln K."""

    buffer: int = setting(300, at_least=1)
    acquisition: str = setting("sensitivity", choices=RULES)
    lr: float = setting(1e-5, above=0)
    steps: int = setting(1, at_least=1)
    sure_below: float = setting(0.4, at_least=0)


@method("eatta", EattaSettings)
class Eatta(RecentImagesMethod):
    settings: EattaSettings

    def weights(self) -> Tensor:
        """Scale and shift [2, d]."""
        return torch.stack([torch.ones_like(self.text[0]), torch.zeros_like(self.text[0])])

    def start(self) -> State:
        """Also the running norms of both gradients; class and score of the last answer."""
        return super().start() | {"norms": self.text.new_zeros(2), "last": self.text.new_full((2,), -1.0)}

    def classify(self, weights: Tensor, features: Tensor) -> Tensor:
        return self.logits(F.normalize(features * weights[0] + weights[1], dim=-1))

    def predict(self, views: Tensor, ahead: Tensor | None = None) -> MethodOutput:
        """By its own rule the class that was answered last is passed over unless its score is higher."""
        output = super().predict(views, ahead)
        if self.settings.acquisition != "sensitivity" or output.score is None or output.item is None:
            return output
        last, score = self.state["last"].tolist()
        repeated = int(output.probs.argmax()) == int(last) and output.score <= score
        item = replace(output.item, beliefs=self.text.new_tensor([output.score]))
        return replace(output, score=0.0 if repeated else output.score, item=item)

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        if item.beliefs is not None:
            self.state["last"] = torch.cat([self.text.new_tensor([float(label)]), item.beliefs.to(self.text)])
        super().learn(id, label, item)

    def gradient(self, weights: Tensor, generator: torch.Generator) -> Tensor:
        """w₁ ∂H + w₂ ∂CE; the weights make both as long as the other one, on average."""
        known, labels = self.held()
        with torch.enable_grad():
            weights = weights.detach().requires_grad_()
            by_label = gradient_of(F.cross_entropy(self.classify(weights, known), labels), weights)
            unsure = entropies(self.classify(weights, self.others()))
            sure = unsure[unsure < self.settings.sure_below * math.log(len(self.text))]
            if not len(sure):  # the balance would weight the answers with 0
                return by_label
            by_entropy = gradient_of(sure.mean(), weights)
        norms = torch.stack([by_entropy.norm(), by_label.norm()])
        began = bool(self.state["norms"].any())
        self.state["norms"] = KEEP * self.state["norms"] + (1 - KEEP) * norms if began else norms
        shares = 2 * self.state["norms"] / self.state["norms"].sum().clamp_min(1e-12)
        return shares[1] * by_entropy + shares[0] * by_label
