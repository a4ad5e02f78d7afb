"""FreeTTA (Dai & Yang, CVPR 2025): class Gaussians by online EM, images weighted by their entropy.

There is no public code; the formulas are second-hand.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from taps.methods import EncodedImage, FeatureMethod, Snapshot, State, TextSettings, method, setting
from taps.methods.features import gaussian_scores
from taps.saved import check_arrays, check_features


class FreettaSettings(TextSettings):
    """FreeTTA's values, the same for all data sets.

    Attributes:
        weight: α, of the Gaussians beside zero-shot.
        doubt: β: an image counts as exp(−β · H), with H the entropy of zero-shot in nats.
        text_count: How many images a class's text, and the unit covariance, count for.
    """

    weight: float = setting(0.2, at_least=0)
    doubt: float = setting(4.5, at_least=0)
    text_count: float = setting(1.0, at_least=1e-6)


@method("freetta", FreettaSettings)
class FreeTta(FeatureMethod):
    settings: FreettaSettings

    def start(self) -> State:
        count = self.settings.text_count
        return {
            "means": self.text.clone(),
            "counts": self.text.new_full((len(self.text),), count),
            "covariance": torch.eye(self.text.shape[1]).to(self.text),
            "total": self.text.new_full((), count),
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        posterior = torch.softmax(self.score(seen.feature), dim=-1)
        self.take(seen.feature, posterior, math.exp(-self.settings.doubt * seen.entropy))
        return seen.logits[0] + self.settings.weight * self.score(seen.feature)

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        kind, least = str(self.text.dtype).removeprefix("torch."), 0.99 * self.settings.text_count
        check_arrays(self.state, {"total": (), "counts": ("K",)}, kind=kind, at_least=least)
        check_features("means", self.state["means"])

    def score(self, feature: Tensor) -> Tensor:
        """ln π_k + xᵀΛμ_k − ½ μ_kᵀΛμ_k of each class [K], with Λ the inverse of the shared covariance."""
        density = gaussian_scores(self.state["means"], self.state["covariance"], feature)
        return density + torch.log(self.state["counts"] / self.state["counts"].sum())

    def take(self, feature: Tensor, posterior: Tensor, weight: float) -> None:
        """The M step: counts, means and covariance with one more image, of this weight."""
        shares = weight * posterior
        self.state["counts"] += shares
        moved = (shares / self.state["counts"])[:, None] * (feature - self.state["means"])
        self.state["means"] += moved
        apart = feature - self.state["means"]
        total = self.state["total"]
        scatter = total * self.state["covariance"] + (shares[:, None] * apart).T @ apart
        total += weight
        self.state["covariance"] = scatter / total
