"""TDA: no gradient, no label; features of confident images vote for their class, unsure ones against."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.adapt.losses import mean_entropy
from taps.clip import Clip
from taps.methods.base import Method, MethodOutput, Snapshot
from taps.methods.ranges import setting
from taps.methods.registry import method
from taps.methods.settings import TextSettings
from taps.prompts.classify import text_classifier


@dataclass(frozen=True)
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
    positive_shots: int = setting(3, at_least=0)
    positive_weight: float = setting(2.0, at_least=0)
    positive_sharpness: float = setting(3.0, at_least=0)
    negative_shots: int = setting(2, at_least=0)
    negative_weight: float = setting(0.117, at_least=0)
    negative_sharpness: float = setting(1.0, at_least=0)
    unsure_from: float = setting(0.2, at_least=0)
    unsure_to: float = setting(0.5, at_least=0)
    mask_above: float = setting(0.03, at_least=0, below=1)


class Cache:
    """For each class its `shots` images of lowest entropy: features, values [K], entropies."""

    def __init__(self, shots: int) -> None:
        self.shots = shots
        self.items: dict[int, list[tuple[float, Tensor, Tensor]]] = {}

    def add(self, label: int, entropy: float, feature: Tensor, value: Tensor) -> None:
        kept = [*self.items.get(label, []), (entropy, feature, value)]
        self.items[label] = sorted(kept, key=lambda item: item[0])[: self.shots]

    def votes(self, feature: Tensor, sharpness: float) -> Tensor | float:
        """Σ_i exp(−sharpness · (1 − cos_i)) · value_i; 0 while nothing is kept."""
        kept = [item for label in sorted(self.items) for item in self.items[label]]
        if not kept:
            return 0.0
        features, values = (torch.stack(part) for part in ([k[1] for k in kept], [k[2] for k in kept]))
        return torch.exp(sharpness * (features @ feature - 1)) @ values

    def widen(self, classes: int) -> None:
        for label, kept in self.items.items():
            self.items[label] = [(h, x, F.pad(value, (0, classes - len(value)))) for h, x, value in kept]

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        return {
            f"{prefix}.{label}.{place}.{name}": tensor
            for label, kept in self.items.items()
            for place, (_, feature, value) in enumerate(kept)
            for name, tensor in (("feature", feature), ("value", value))
        }

    def entropies(self) -> dict[str, list[float]]:
        return {str(label): [entropy for entropy, _, _ in kept] for label, kept in self.items.items()}

    def restore(self, prefix: str, entropies: dict[str, list[float]], tensors: dict[str, Tensor]) -> None:
        self.items = {
            int(label): [
                (
                    entropy,
                    tensors[f"{prefix}.{label}.{place}.feature"],
                    tensors[f"{prefix}.{label}.{place}.value"],
                )
                for place, entropy in enumerate(kept)
            ]
            for label, kept in entropies.items()
        }


@method("tda", TdaSettings)
class Tda(Method):
    """A training-free cache of confident and of unsure images."""

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: TdaSettings, seed: int) -> None:
        self.settings = settings
        self.classifier = text_classifier(clip, classes, settings.template)
        with torch.no_grad():
            self.text = self.classifier.text(None)
        self.positive, self.negative = Cache(settings.positive_shots), Cache(settings.negative_shots)

    @torch.no_grad()
    def predict(self, views: Tensor) -> MethodOutput:
        settings = self.settings
        feature = self.classifier.image(self.classifier.clip.preprocess(views[:1]), None)
        logits = self._logits(feature)
        probs = torch.softmax(logits, dim=-1)
        entropy = float(mean_entropy(logits[None]))
        if math.isfinite(entropy):
            self._keep(feature[0], probs, entropy)
        for_it = self.positive.votes(feature[0], settings.positive_sharpness)
        against = self.negative.votes(feature[0], settings.negative_sharpness)
        logits = logits + settings.positive_weight * for_it - settings.negative_weight * against
        return MethodOutput(torch.softmax(logits, dim=-1), entropy)

    def _logits(self, feature: Tensor) -> Tensor:
        if self.settings.scale is None:
            return self.classifier.logits(feature, self.text)[0]
        return self.settings.scale * self.text @ feature[0]

    def _keep(self, feature: Tensor, probs: Tensor, entropy: float) -> None:
        settings, label = self.settings, int(probs.argmax())
        self.positive.add(
            label, entropy, feature, torch.eye(len(probs), device=probs.device, dtype=probs.dtype)[label]
        )
        if settings.unsure_from < entropy / math.log2(len(probs)) < settings.unsure_to:
            self.negative.add(label, entropy, feature, (probs > settings.mask_above).to(probs.dtype))

    def grow(self, old: Self) -> None:
        """Cached images vote neither for nor against a class that was not there."""
        self.restore(old.snapshot())
        for cache in (self.positive, self.negative):
            cache.widen(len(self.text))

    def snapshot(self) -> Snapshot:
        tensors = self.positive.tensors("positive") | self.negative.tensors("negative")
        return Snapshot(
            tensors, {"positive": self.positive.entropies(), "negative": self.negative.entropies()}
        )

    def restore(self, snapshot: Snapshot) -> None:
        tensors = {name: value.to(self.text.device) for name, value in snapshot.tensors.items()}
        self.positive.restore("positive", snapshot.values["positive"], tensors)
        self.negative.restore("negative", snapshot.values["negative"], tensors)

    def summary(self) -> dict[str, Any]:
        held = {
            name: sum(map(len, cache.items.values()))
            for name, cache in (("positive", self.positive), ("negative", self.negative))
        }
        return {f"cache_{name}": count for name, count in held.items()}
