"""GS-Bias (Huang et al., ICML 2025): entropy steps on two biases of the logits, of views and of patches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.errors import SettingsError
from taps.learning.losses import mean_entropy
from taps.methods import EncodedImage, FeatureMethod, Method, ViewSettings, method, setting
from taps.methods.features import entropy_gradient
from taps.model.clip import Clip
from taps.model.clip.vision import VisionTower

KEPT = 0.9  # share of the newest bias in the one that is used
CHANGE = 0.25  # relative change of the views' entropy at which the steps end


class GsBiasSettings(ViewSettings):
    """GS-Bias' values for Caltech101, here for all data sets.

    Attributes:
        view_rate: α, step size of the bias of the views.
        patch_rate: β, of the bias of the patches.
        patches: How many patches are learned from.
        steps: At most.
    """

    views: int = setting(8, at_least=1, at_most=10_000)
    fraction: float = setting(0.5, above=0, at_most=1)
    view_rate: float = setting(5.0, at_least=0)
    patch_rate: float = setting(1.0, at_least=0)
    patches: int = setting(16, at_least=1)
    steps: int = setting(5, at_least=1)


@dataclass(frozen=True)
class PatchedImage(EncodedImage):
    """With the logits of view 0's patches [patches, K]."""

    patches: Tensor


@method("gs_bias", GsBiasSettings)
class GsBias(FeatureMethod):
    settings: GsBiasSettings
    stateless = True

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: GsBiasSettings, seed: int) -> None:
        if not isinstance(clip.visual, VisionTower) or clip.visual.pooling != "class":
            raise SettingsError(
                f"The method 'gs_bias' reads patches as class tokens; the image tower of {clip.config.name} "
                "has none. Use a vision transformer with a class token, such as ViT-B-16."
            )
        self.tower = clip.visual
        super().__init__(clip, classes, settings, seed)

    def batch_key(self) -> Hashable:
        return "patches", super().batch_key()

    def encode_batch(self, methods: Sequence[Method], views: Sequence[Tensor]) -> list[Tensor]:
        """Normalised features of the views of several images, and behind them those of view 0's patches."""
        features = super().encode_batch(methods, views)
        patches = self.patch_features(torch.stack([each[0] for each in views]))
        return [torch.cat(both) for both in zip(features, patches, strict=True)]

    def encode(self, views: Tensor, ahead: Tensor | None) -> Tensor:
        return self.encode_batch([self], [views])[0] if ahead is None else ahead

    @torch.no_grad()
    def patch_features(self, images: Tensor) -> Tensor:
        clip = self.classifier.clip
        found = self.tower.patch_features(clip.preprocess(images.to(clip.device)))
        return F.normalize(found.to(self.classifier.dtype), dim=-1)

    def see(self, features: Tensor) -> PatchedImage:
        views = len(features) - self.classifier.clip.config.patches
        seen = super().see(features[:views])
        patches = self.logits(features[views:])
        return PatchedImage(seen.features, seen.logits, seen.chosen, seen.entropy, patches)

    def adapt(self, seen: EncodedImage) -> Tensor:
        assert isinstance(seen, PatchedImage)
        newest = used = torch.zeros(2, seen.logits.shape[1]).to(seen.logits)  # of views and of patches
        first = seen.entropy
        for step in range(self.settings.steps):
            current = KEPT * newest + (1 - KEPT) * used
            views, patches = seen.logits + current[0], seen.patches + current[1]
            views = views[self.settings.confident(views)]
            if abs(float(mean_entropy(views)) - first) > CHANGE * first:
                break
            # The authors' first bias is also the one it is averaged with, and counts as a whole.
            newest = newest - (KEPT if step else 1.0) * self.moves(views, patches)
            used = current
        return seen.logits[0] + (KEPT * newest + (1 - KEPT) * used).sum(dim=0)

    def moves(self, views: Tensor, patches: Tensor) -> Tensor:
        """What one step takes off the two biases [2, K]."""
        telling = torch.softmax(patches, dim=0).sum(dim=1)  # patches that classes look at most
        chosen = telling.topk(min(self.settings.patches, len(patches))).indices
        by_views = self.settings.view_rate * entropy_gradient(views).sum(dim=0)
        by_patches = self.settings.patch_rate * entropy_gradient(patches[chosen]).sum(dim=0)
        return torch.stack([by_views, by_patches])
