"""DMN (Zhang et al., CVPR 2024): a memory of each class's surest images, read by similarity to the image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import EncodedImage, FeatureMethod, State, TextSettings, ViewSettings, method, setting
from taps.methods.features import closeness, empty_cache


class WeakSettings(TextSettings):
    """DMN's published values, without those searched for each data set.

    Attributes:
        shots: Surest images kept of each predicted class.
        sharpness: β, how fast an image's part in its class fades with distance.
        weight: α, of the memory beside zero-shot.
    """

    shots: int = setting(50, at_least=1)
    sharpness: float = setting(5.5, at_least=0)
    weight: float = setting(1.0, at_least=0)


class DmnSettings(WeakSettings, ViewSettings):
    """The views whose mean prediction says under which class an image is kept."""


@method("dmn_weak", WeakSettings)
class DmnWeak(FeatureMethod):
    """DMN with one view."""

    settings: WeakSettings

    def start(self) -> State:
        return empty_cache(self.text, self.settings.shots)

    def adapt(self, seen: EncodedImage) -> Tensor:
        label = int(torch.softmax(seen.logits[seen.chosen], dim=-1).mean(dim=0).argmax())
        cache = self.cache()
        cache.keep(label, seen.entropy, seen.feature)
        memory = cache.features[:, : cache.held.any(dim=0).nonzero().max() + 1]  # empty places add nothing
        read = recalled(memory, self.text, seen.feature, self.settings.sharpness)
        recall_probs = torch.softmax(self.classifier.logits(seen.features[:1], read)[0], dim=-1)
        return torch.log(seen.probs + self.settings.weight * recall_probs)


@method("dmn", DmnSettings)
class Dmn(DmnWeak):
    """DMN (Zhang et al., CVPR 2024): a memory of each class's surest images, read by similarity."""


def recalled(memory: Tensor, text: Tensor, feature: Tensor, sharpness: float) -> Tensor:
    """Each class read out for an image: the mean of its kept images and its text, by closeness [K, d].

    Args:
        memory: Kept images of each class [K, shots, d], zeros where there is none.
        text: Of each class [K, d].
        feature: Of the image [d].
        sharpness: How fast a part fades with distance.
    """
    recall = closeness(memory, feature, sharpness)
    own = closeness(text, feature, sharpness)[:, None] * text
    return F.normalize((recall[:, None] @ memory)[:, 0] + own, dim=-1)
