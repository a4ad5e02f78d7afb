"""Class means: cosines to the mean of each class's labelled images, added to zero-shot."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from taps.methods import EncodedImage, method, setting
from taps.rivals.labelled import LabelSettings, LabelSums


class ClassMeansSettings(LabelSettings):
    """`zero_shot` is the weight of the zero-shot logits; 0 for the nearest mean alone."""

    zero_shot: float = setting(1.0, at_least=0)


@method("class_means", ClassMeansSettings)
class ClassMeans(LabelSums):
    settings: ClassMeansSettings

    def adapt(self, seen: EncodedImage) -> Tensor:
        cosines = F.normalize(self.means(), dim=-1) @ seen.feature.to(self.state["sums"])
        votes = float(self.classifier.clip.scale) * self.against_the_others(cosines)
        return self.settings.zero_shot * seen.logits[0] + votes
