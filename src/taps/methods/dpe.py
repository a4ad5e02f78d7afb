"""DPE: texts and means of cached images take one step together for each image; sure images move the texts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.adapt.losses import mean_entropy
from taps.adapt.optimiser import adamw, fresh_moments
from taps.methods.features import EMPTY, FeatureMethod, Seen, State, keep_surest
from taps.methods.ranges import setting
from taps.methods.registry import method
from taps.methods.settings import ViewSettings

TEMPERATURE = 0.01  # of the contrast between texts and means


@dataclass(frozen=True)
class DpeSettings(ViewSettings):
    """DPE's published values for DTD, here for all data sets.

    Attributes:
        shots: Surest images kept of each predicted class.
        weight: α, of the cached means.
        sharpness: β, how fast a mean's vote fades with distance.
        lr: Learning rate of texts and means.
        align: Weight of the contrast between texts and means in the loss.
        sure_below: Entropy, in nats over log2 K, below which the moved texts are remembered.
    """

    shots: int = setting(3, at_least=1)
    weight: float = setting(6.0, at_least=0)
    sharpness: float = setting(3.0, at_least=0)
    lr: float = setting(6e-4, at_least=0)
    align: float = setting(0.2, at_least=0)
    sure_below: float = setting(0.1, at_least=0)


@method("dpe", DpeSettings)
class Dpe(FeatureMethod):
    """Class texts and means of sure images take one step together."""

    settings: DpeSettings

    def start(self) -> State:
        classes, dim = self.text.shape
        return {
            "texts": self.text.clone(),  # the running mean of moved texts
            "moved": self.text.new_zeros(()),  # how many
            "memory": self.text.new_zeros(classes, self.settings.shots, dim),
            "entropies": self.text.new_full((classes, self.settings.shots), EMPTY),
        }

    def adapt(self, seen: Seen) -> Tensor:
        texts = F.normalize(self.state["texts"], dim=-1)
        logits = self.classifier.logits(seen.features, texts)[seen.chosen]
        entropy, mean = float(mean_entropy(logits)), seen.features[seen.chosen].mean(dim=0)
        keep_surest(
            self.state["memory"], self.state["entropies"], int(logits.mean(dim=0).argmax()), entropy, mean
        )
        start = {"texts": torch.zeros_like(texts), "means": torch.zeros_like(texts)}
        end, _, taken = adamw(
            start, self.gradients(start, mean), fresh_moments(start), lr=self.settings.lr, eps=1e-3
        )
        self.updated = bool(taken)
        moved, told = self.score(end, seen.feature)
        if float(mean_entropy(told[None])) / math.log2(len(told)) < self.settings.sure_below:
            self.state["moved"] += 1
            self.state["texts"] += (moved - self.state["texts"]) / (self.state["moved"] + 1)
        return told

    def gradients(self, residuals: State, feature: Tensor) -> State:
        """Of the prediction's entropy and the contrast of each class's text and mean with those of others."""
        with torch.enable_grad():
            leaves = {name: value.clone().requires_grad_() for name, value in residuals.items()}
            texts, told = self.score(leaves, feature)
            means, held = self.means(leaves["means"])
            contrast = F.cross_entropy(
                means[held] @ texts[held].T / TEMPERATURE, torch.arange(int(held.sum())).to(texts.device)
            )
            loss = mean_entropy(told[None]) + self.settings.align * contrast
            return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    def score(self, residuals: State, feature: Tensor) -> tuple[Tensor, Tensor]:
        """The moved texts [K, d], and the logits of a feature [K]."""
        texts = F.normalize(self.state["texts"] + residuals["texts"], dim=-1)
        means, held = self.means(residuals["means"])
        votes = torch.exp(self.settings.sharpness * (means @ feature - 1)) * held
        return texts, self.classifier.logits(feature[None], texts)[0] + self.settings.weight * votes

    def means(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The moved mean of each class's cached images [K, d], and which classes have any [K]."""
        counts = (self.state["entropies"] < EMPTY).sum(dim=1)
        means = self.state["memory"].sum(dim=1) / counts.clamp_min(1)[:, None]
        return F.normalize(means + residual, dim=-1), counts > 0
