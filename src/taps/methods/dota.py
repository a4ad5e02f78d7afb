"""DOTA: a Gaussian for each class, estimated from all images so far, speaks beside zero-shot.

The classes share one covariance. Sums of features, of their outer products and of the weights are all it
needs: d² + K·d numbers whatever the length of the stream. An answer takes the place of the zero-shot belief,
and is taken back, without a trace of what was there before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.adapt.memory import ReplayItem
from taps.methods.base import MethodOutput
from taps.methods.features import FeatureMethod, Seen, State
from taps.methods.ranges import setting
from taps.methods.registry import method
from taps.methods.settings import Asking, ViewSettings


@dataclass(frozen=True)
class DotaSettings(ViewSettings):
    """One setting for all data sets; the authors choose theirs for each, and these were not found.

    Attributes:
        begin: What a class is before the first image: "zero", or its "text" as in DOTA's first version.
        variance: σ, of every class before the first image, in every direction.
        shrink: ε, share of the unit matrix in the covariance.
        weight_growth: ρ, how fast the Gaussians' weight grows with the images seen.
        weight_most: η, the weight they have at most.
    """

    begin: str = setting("zero", choices=("zero", "text"))
    variance: float = setting(0.002, above=0)
    shrink: float = setting(1e-4, above=0, below=1)
    weight_growth: float = setting(0.02, at_least=0)
    weight_most: float = setting(0.2, at_least=0)


@dataclass(frozen=True)
class DotaLabelSettings(Asking, DotaSettings):
    """The same, and whom to ask about: images of lowest top probability, at an exact rate."""

    policy: str = "paced"


@method("dota", DotaSettings)
class Dota(FeatureMethod):
    """A Gaussian for each class, estimated from all images so far."""

    settings: DotaSettings

    def start(self) -> State:
        """Each class begins as one image of the variance given."""
        first = self.text.clone() if self.settings.begin == "text" else torch.zeros_like(self.text)
        unit = torch.eye(self.text.shape[1]).to(self.text)
        return {
            "sums": first,
            "counts": self.text.new_ones(len(self.text)),
            "outer": first.T @ first + len(self.text) * self.settings.variance * unit,
        }

    def adapt(self, seen: Seen) -> Tensor:
        features, logits = seen.features[seen.chosen], seen.logits[seen.chosen]
        growth = self.settings.weight_growth * self.state["counts"].mean() / len(features)
        weight = torch.clamp(growth, max=self.settings.weight_most)
        told = logits.mean(dim=0) + weight * self.score(features.mean(dim=0))
        self.state["outer"] += features.T @ features
        self.take(features, torch.softmax(logits, dim=-1))
        return told

    def score(self, feature: Tensor) -> Tensor:
        """xᵀΛμ_k − ½ μ_kᵀΛμ_k of each class [K], with Λ the inverse of the shrunk covariance."""
        sums, counts, shrink = self.state["sums"], self.state["counts"], self.settings.shrink
        means = sums / counts[:, None]
        covariance = (1 - shrink) * (self.state["outer"] - sums.T @ means) / counts.sum()
        covariance.diagonal().add_(shrink)
        # With Λ = (LLᵀ)⁻¹, one triangular solve gives all products: half the work of solving for Λμ.
        factor = torch.linalg.cholesky(covariance)
        solved: Tensor = torch.linalg.solve_triangular(
            factor, torch.cat([means, feature[None]]).T, upper=False
        )
        return solved[:, -1] @ solved[:, :-1] - 0.5 * solved[:, :-1].square().sum(dim=0)

    def take(self, features: Tensor, weights: Tensor) -> None:
        """Add views [n, d] to the classes' sums, with the weights given [n, K]."""
        self.state["sums"] += weights.T @ features
        self.state["counts"] += weights.sum(dim=0)

    def grow(self, old: Self) -> None:
        added = self.state["outer"] - old.start()["outer"]
        super().grow(old)
        self.state["outer"] += added


@method("dota_labels", DotaLabelSettings)
class DotaLabels(Dota):
    """DOTA, where an expert's answer takes the place of the zero-shot belief."""

    asks = True

    def item(self, seen: Seen) -> ReplayItem:
        beliefs = torch.softmax(seen.logits[seen.chosen], dim=-1)
        return ReplayItem(None, seen.features[seen.chosen], seen.feature.clone(), beliefs=beliefs)

    def predict(self, views: Tensor, ahead: Tensor | None = None) -> MethodOutput:
        output = super().predict(views, ahead)
        item = output.item
        if item is None or item.beliefs is None:
            return output
        return replace(output, score=1 - float(item.beliefs.mean(dim=0).max()))

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        self.take(*self.change(label, item))

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        features, weights = self.change(label, item)
        self.take(features, -weights)

    def change(self, label: int, item: ReplayItem) -> tuple[Tensor, Tensor]:
        """The views, and by how much an answer changes their weights; classes added since had none."""
        assert item.views is not None
        assert item.beliefs is not None
        believed = F.pad(item.beliefs, (0, len(self.text) - item.beliefs.shape[1]))
        told = F.one_hot(torch.tensor(label), len(self.text)).to(believed)
        return item.views.to(believed), told - believed
