"""GDA (Wang et al., ICLR 2024): Gaussians of the labelled images with one covariance, added to zero-shot."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.methods import EncodedImage, ReplayItem, State, method, setting
from taps.methods.features import ridge_precision
from taps.rivals.labelled import LabelSettings, LabelSums


class GdaSettings(LabelSettings):
    """`weight` is α of the Gaussians' scores: that of `oga`; the authors search it on a validation set.

    The scale of the logits is the model's (theirs: 100).
    """

    weight: float = setting(0.05, at_least=0)


@method("gda", GdaSettings)
class Gda(LabelSums):
    settings: GdaSettings
    fitted: tuple[Tensor, Tensor] | None

    def start(self) -> State:
        dim = self.text.shape[1]
        return super().start() | {"outer": self.text.new_zeros(dim, dim, dtype=torch.float64)}

    def adapt(self, seen: EncodedImage) -> Tensor:
        if self.fitted is None:
            self.fitted = self.gaussians()
        projected, offsets = self.fitted
        scores = projected @ seen.feature.to(projected) - offsets
        return seen.logits[0] + self.settings.weight * self.against_the_others(scores)

    def change(self, label: int, item: ReplayItem, times: int) -> None:
        super().change(label, item, times)
        feature = item.feature.to(self.state["outer"])
        self.state["outer"] += times * torch.outer(feature, feature)

    def gaussians(self) -> tuple[Tensor, Tensor]:
        """Λμ_k [K, d] and ½ μ_kᵀΛμ_k [K], with Λ = d · (scatter + tr(scatter)/(n − 1) · I)⁻¹."""
        means = self.means()
        scatter = self.state["outer"] - self.state["sums"].T @ means
        spread = float(scatter.trace()) / max(1.0, float(self.state["counts"].sum()) - 1)
        projected = ridge_precision(means, scatter, spread)
        return projected, 0.5 * (projected * means).sum(dim=1)
