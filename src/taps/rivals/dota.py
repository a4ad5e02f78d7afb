"""DOTA (Han et al., NeurIPS 2025): a Gaussian for each class from all images so far, added to zero-shot.

The classes share one covariance, so that sums of features, of their outer products and of the weights are all
that is kept: d² + K·d numbers. An answer replaces the zero-shot probabilities as weights, and can be undone.
`as_published` keeps a covariance for each class, around the means as they were when an image came, as the
authors' code does: K·d² numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.errors import SettingsError
from taps.learning.memory import check_item
from taps.methods import (
    Asking,
    EncodedImage,
    FeatureMethod,
    HeadInputs,
    MethodOutput,
    ReplayItem,
    State,
    ViewSettings,
    method,
    setting,
)
from taps.methods.features import gaussian_scores
from taps.saved import check_arrays

BEGIN = 0.001  # every entry of a mean before the first image, in the authors' code


class DotaSettings(ViewSettings):
    """One setting for all data sets, the authors' for Flowers; theirs for the others are presets.

    Attributes:
        begin: What a class is before the first image: "zero", or its "text" as in DOTA's first version.
        as_published: Whether covariances are each class's own, around past means, and a class that begins at
            "zero" begins at 0.001 in every direction.
        variance: σ, of every class before the first image, in every direction.
        shrink: ε, share of the unit matrix in the covariance.
        weight_growth: ρ, how fast the Gaussians' weight grows with the images seen.
        weight_most: η, the weight they have at most.
    """

    begin: str = setting("zero", choices=("zero", "text"))
    as_published: bool = False
    variance: float = setting(0.002, above=0)
    shrink: float = setting(1e-4, above=0, below=1)
    weight_growth: float = setting(0.02, at_least=0)
    weight_most: float = setting(0.2, at_least=0)


class DotaLabelSettings(Asking, DotaSettings):
    """DOTA's; the images of lowest top probability are asked about, at an exact rate."""

    policy: str = "paced"


@method("dota", DotaSettings)
class Dota(FeatureMethod):
    settings: DotaSettings

    def start(self) -> State:
        """Each class starts as one image of the given variance."""
        first, classes = self.first(), len(self.text)
        spread = self.settings.variance * torch.eye(self.text.shape[1]).to(self.text)
        begun = {"sums": first, "counts": self.text.new_ones(classes)}
        if self.settings.as_published:
            return begun | {"scatter": spread.repeat(classes, 1, 1)}
        return begun | {"outer": first.T @ first + classes * spread}

    def first(self) -> Tensor:
        """The means before the first image [K, d]."""
        if self.settings.begin == "text":
            return self.text.clone()
        return torch.full_like(self.text, BEGIN if self.settings.as_published else 0.0)

    def adapt(self, seen: EncodedImage) -> Tensor:
        features, logits = seen.features[seen.chosen], seen.logits[seen.chosen]
        growth = self.settings.weight_growth * self.state["counts"].mean() / len(features)
        weight = torch.clamp(growth, max=self.settings.weight_most)
        scores = gaussian_scores(self.means(), self.covariance(), features.mean(dim=0))
        combined = logits.mean(dim=0) + weight * scores
        if not self.settings.as_published:
            self.state["outer"] += features.T @ features
        self.take(features, torch.softmax(logits, dim=-1), self.means())
        return combined

    def means(self) -> Tensor:
        return self.state["sums"] / self.state["counts"][:, None]

    def covariance(self) -> Tensor:
        """Shrunk, and shared by the classes [d, d]."""
        counts, shrink = self.state["counts"], self.settings.shrink
        if self.settings.as_published:
            if float(counts.sum()) <= len(counts):
                shrink = 0.0  # in the authors' code the first image is compared before any is shrunk
            covariance = (self.state["scatter"] / counts[:, None, None]).mean(dim=0)
        else:
            covariance = (self.state["outer"] - self.state["sums"].T @ self.means()) / counts.sum()
        covariance *= 1 - shrink
        covariance.diagonal().add_(shrink)
        return covariance

    def take(self, features: Tensor, weights: Tensor, around: Tensor) -> None:
        """Add views [n, d] to the classes' sums, with weights [n, K]; covariances are `around` means."""
        self.state["sums"] += weights.T @ features
        self.state["counts"] += weights.sum(dim=0)
        if self.settings.as_published:
            apart = features[:, None] - around
            self.state["scatter"] += torch.einsum("nk,nki,nkj->kij", weights, apart, apart)

    def grow(self, old: Self) -> None:
        before = None if self.settings.as_published else self.state["outer"] - old.start()["outer"]
        super().grow(old)
        if before is not None:
            self.state["outer"] += before


@method("dota_labels", DotaLabelSettings)
class DotaLabels(Dota):
    """DOTA, where an answer replaces the zero-shot probabilities."""

    asks = True

    def head_inputs(self) -> HeadInputs:
        raise SettingsError("dota_labels learns from answers by itself; put the head on dota: dota+.")

    def item(self, seen: EncodedImage) -> ReplayItem:
        beliefs = torch.softmax(seen.logits[seen.chosen], dim=-1)
        if self.settings.as_published:  # an answer is taken in around the means as they were
            beliefs = torch.cat([beliefs, self.means().T])
        return ReplayItem(None, seen.features[seen.chosen], seen.feature.clone(), beliefs=beliefs)

    def predict(self, views: Tensor, ahead: Tensor | None = None) -> MethodOutput:
        output = super().predict(views, ahead)
        item = output.item
        if item is None or item.beliefs is None or item.views is None:
            return output
        return replace(output, score=1 - float(item.beliefs[: len(item.views)].mean(dim=0).max()))

    def check_item(self, item: ReplayItem) -> None:
        dim, kind = self.text.shape[1], self.text.dtype
        check_item(item, kind, feature=(dim,), views=(range(1, self.settings.views + 1), dim))
        assert item.views is not None
        rows = len(item.views) + dim * self.settings.as_published
        check_item(item, kind, beliefs=(rows, range(1, len(self.text) + 1)))
        assert item.beliefs is not None
        probs = {"probabilities": item.beliefs[: len(item.views)].double()}
        check_arrays(probs, {"probabilities": ("n", "K")}, at_least=0, at_most=1.01)

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        self.take(*self.change(label, item))

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        features, weights, around = self.change(label, item)
        self.take(features, -weights, around)

    def change(self, label: int, item: ReplayItem) -> tuple[Tensor, Tensor, Tensor]:
        """The views, by how much an answer changes their weights, and the means when the image came.

        Classes added since had no weight, and the mean they start with.
        """
        assert item.views is not None
        assert item.beliefs is not None
        views, known = item.views.to(self.text), item.beliefs.to(self.text)
        believed = F.pad(known[: len(views)], (0, len(self.text) - known.shape[1]))
        one_hot = F.one_hot(torch.tensor(label), len(self.text)).to(believed)
        around = self.first()
        if self.settings.as_published:
            around[: known.shape[1]] = known[len(views) :].T
        return views, one_hot - believed, around
