"""TDA (Karmanov et al., CVPR 2024): a cache of confident images votes for, one of unsure images against."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from taps.methods import EncodedImage, FeatureMethod, State, TextSettings, method, setting
from taps.methods.features import Cache, closeness, empty_cache


class TdaSettings(TextSettings):
    """TDA's published values.

    Attributes:
        scale: What cosine similarities are multiplied with; None for the model's own scale.
        positive_shots: Confident images kept of each predicted class.
        positive_weight: Weight of their vote.
        positive_sharpness: How fast a vote fades with distance.
        negative_shots: Unsure images kept of each predicted class.
        negative_weight: Weight of their vote against.
        negative_sharpness: How fast that fades.
        unsure_from: Lowest entropy of an unsure image, in nats over log2 K as TDA counts it.
        unsure_to: Highest.
        mask_above: An unsure image votes against the classes it gave at least this probability.
    """

    scale: float | None = setting(100.0, above=0)
    positive_shots: int = setting(3, at_least=1)
    positive_weight: float = setting(2.0, at_least=0)
    positive_sharpness: float = setting(3.0, at_least=0)
    negative_shots: int = setting(2, at_least=1)
    negative_weight: float = setting(0.117, at_least=0)
    negative_sharpness: float = setting(1.0, at_least=0)
    unsure_from: float = setting(0.2, at_least=0)
    unsure_to: float = setting(0.5, at_least=0)
    mask_above: float = setting(0.03, at_least=0, below=1)


@method("tda", TdaSettings)
class Tda(FeatureMethod):
    settings: TdaSettings

    def start(self) -> State:
        classes, shots = len(self.text), self.settings.negative_shots
        return {
            **empty_cache(self.text, self.settings.positive_shots, "positive"),
            **empty_cache(self.text, shots, "negative"),
            # For each unsure image the classes it votes against.
            "masks": self.text.new_zeros(classes, shots, classes),
        }

    def logits(self, features: Tensor) -> Tensor:
        return self.scaled(features, self.text)

    def scaled(self, features: Tensor, text: Tensor) -> Tensor:
        """Logits of features [n, d] by class features [K, d]."""
        if self.settings.scale is None:
            return self.classifier.logits(features, text)
        return self.settings.scale * features @ text.T

    def adapt(self, seen: EncodedImage) -> Tensor:
        entropy, label = self.entropy(seen.logits[0]), int(seen.logits[0].argmax())
        self.cache("positive").keep(label, entropy, seen.feature)
        if self.unsure(entropy):
            mask = (seen.probs > self.settings.mask_above).to(self.text)
            self.keep_unsure(label, entropy, seen.feature, mask)
        return seen.logits[0] + self.votes_for(seen) - self.votes_against(seen.feature)

    def entropy(self, logits: Tensor) -> float:
        return float(torch.special.entr(torch.softmax(logits, dim=-1)).sum())

    def unsure(self, entropy: float) -> bool:
        return self.settings.unsure_from < entropy / math.log2(len(self.text)) < self.settings.unsure_to

    def keep_unsure(self, label: int, entropy: float, feature: Tensor, mask: Tensor) -> None:
        """Of the unsure images, too, the surest are kept."""
        slot = self.cache("negative").keep(label, entropy, feature)
        if slot is not None:
            self.state["masks"][label, slot] = mask

    def votes_for(self, seen: EncodedImage) -> Tensor:
        """Votes of the confident images for each class [K]."""
        return self.count_votes(self.cache("positive"), seen.feature)

    def count_votes(self, cache: Cache, feature: Tensor) -> Tensor:
        """weight · Σ_i exp(−sharpness · (1 − cos_i)) over the images of each class [K]."""
        close = closeness(cache.features, feature, self.settings.positive_sharpness) * cache.held
        return self.settings.positive_weight * close.sum(dim=1)

    def votes_against(self, feature: Tensor) -> Tensor:
        cache = self.cache("negative")
        close = closeness(cache.features, feature, self.settings.negative_sharpness) * cache.held
        return self.settings.negative_weight * (close.flatten() @ self.state["masks"].flatten(0, 1))

    def summary(self) -> dict[str, Any]:
        return {f"cache_{name}": int(self.cache(name).held.sum()) for name in ("positive", "negative")}
