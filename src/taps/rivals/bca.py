"""BCA (Zhou et al., CVPR 2025): running means of class features, each with a table P(class | feature)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import EncodedImage, FeatureMethod, State, TextSettings, method, setting


class BcaSettings(TextSettings):
    """BCA's values, as far as they are known. The scale of the logits is the model's (theirs: 100).

    Attributes:
        feature_above: Top probability from which an image moves the feature of its class.
        feature_count: Weight of the text in the mean, in images.
        table_above: Top probability from which an image changes its class's row of the table.
        table_count: Weight of the row's start in its mean, in images.
    """

    feature_above: float = setting(0.05, at_least=0, at_most=1)
    feature_count: float = setting(20000.0, above=0)
    table_above: float = setting(0.65, at_least=0, at_most=1)
    table_count: float = setting(1.0, above=0)


@method("bca", BcaSettings)
class Bca(FeatureMethod):
    settings: BcaSettings

    def start(self) -> State:
        classes = len(self.text)
        return {
            "features": self.text.clone(),
            "feature_counts": self.text.new_full((classes,), self.settings.feature_count),
            "table": torch.eye(classes).to(self.text),  # P(class | feature), a row for each feature
            "table_counts": self.text.new_full((classes,), self.settings.table_count),
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        nearest = self.classifier.logits(seen.features[:1], self.state["features"])[0]
        probs = torch.softmax(nearest, dim=-1) @ self.state["table"]
        top, label = float(probs.max()), int(probs.argmax())
        if top > self.settings.feature_above:
            moved = self.running_mean("features", "feature_counts", label, seen.feature)
            self.state["features"][label] = F.normalize(moved, dim=0)
        if top > self.settings.table_above:
            self.state["table"][label] = self.running_mean("table", "table_counts", label, probs)
        return torch.log(probs.clamp_min(torch.finfo(probs.dtype).tiny))

    def running_mean(self, name: str, count: str, label: int, value: Tensor) -> Tensor:
        """A row with one more value in its mean; counted."""
        counts = self.state[count]
        mean = (counts[label] * self.state[name][label] + value) / (counts[label] + 1)
        counts[label] += 1
        return mean
