"""Zero-shot CLIP: a hand-written sentence per class, one view, nothing learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from taps.classifier import Classifier, class_texts
from taps.clip import Clip
from taps.gradient import point_at
from taps.losses import mean_entropy
from taps.memory import Evidence
from taps.methods.base import Snapshot, Verdict
from taps.methods.settings import TextSettings


class ZeroShot:
    """Predicts from view 0 with "a photo of a {}."."""

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: TextSettings) -> None:
        self.classifier = Classifier(
            clip, clip.text_layout(class_texts(classes, settings.template)), kind=None
        )
        self.point = point_at(self.classifier, {}, graph=False)

    @property
    def asks(self) -> bool:
        return False

    @torch.no_grad()
    def predict(self, views: Tensor) -> Verdict:
        feature = self.classifier.image(self.classifier.clip.preprocess(views[:1]), None)
        logits = self.classifier.logits(feature, self.point.text)
        return Verdict(torch.softmax(logits[0], dim=-1), float(mean_entropy(logits)))

    def learn(self, id: int, label: int, evidence: Evidence) -> None:
        """Nothing is learned."""

    def snapshot(self) -> Snapshot:
        return Snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """There is nothing to restore."""

    def summary(self) -> dict[str, Any]:
        return {}


def build(clip: Clip, classes: tuple[str, ...], settings: TextSettings, seed: int) -> ZeroShot:
    return ZeroShot(clip, classes, settings)
