"""GDA: a Gaussian for each class from its labelled images, with one covariance, beside zero-shot."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from taps.methods.features import EncodedImage, State
from taps.methods.labelled import LabelSettings, LabelSums
from taps.methods.ranges import setting
from taps.methods.registry import method

ALIKE = 1e-9  # total variance below which labelled images say nothing of directions


@dataclass(frozen=True)
class GdaSettings(LabelSettings):
    """One weight for all data sets; the authors search it on a validation set.

    Attributes:
        weight: α, of the Gaussians' scores; that of `oga`, whose Gaussians have the same covariance.
    """

    weight: float = setting(0.05, at_least=0)


@method("gda", GdaSettings)
class Gda(LabelSums):
    """Gaussians over the labelled images, beside zero-shot."""

    settings: GdaSettings
    fitted: tuple[Tensor, Tensor] | None

    def start(self) -> State:
        begun = super().start()
        dim = self.text.shape[1]
        return begun | {"outer": begun["sums"].new_zeros(dim, dim)}

    def adapt(self, seen: EncodedImage) -> Tensor:
        if self.fitted is None:
            self.fitted = self.gaussians()
        projected, offsets = self.fitted
        scores = projected @ seen.feature.to(projected) - offsets
        return seen.logits[0] + self.settings.weight * self.against_the_others(scores)

    def add(self, label: int, feature: Tensor, times: int) -> None:
        super().add(label, feature, times)
        self.state["outer"] += times * torch.outer(feature, feature)

    def gaussians(self) -> tuple[Tensor, Tensor]:
        """Λμ_k [K, d] and ½ μ_kᵀΛμ_k [K], with Λ = d · (scatter + tr(scatter)/(n − 1) · I)⁻¹."""
        means, dim = self.means(), self.text.shape[1]
        scatter = self.state["outer"] - self.state["sums"].T @ means
        spread = float(scatter.trace()) / max(1.0, float(self.state["counts"].sum()) - 1)
        if spread < ALIKE:  # no class has two different images: as if the covariance were I/d
            projected = dim * means
        else:
            scatter.diagonal().add_(spread)
            projected = dim * torch.cholesky_solve(means.T, torch.linalg.cholesky(scatter)).T
        return projected, 0.5 * (projected * means).sum(dim=1)
