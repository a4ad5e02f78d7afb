"""StatA (Zanella et al., CVPR 2025): Gaussians over the last images, each anchored to its text.

Its authors see batches, and take more steps (docs/results/methods.md).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import method, setting
from taps.rivals.window import PASSES, WindowMethod, WindowSettings, neighbours

TINY = 1e-8  # least variance


class StatASettings(WindowSettings):
    """StatA's published values.

    Attributes:
        anchor: α, weight of a class's text, in images.
        temperature: What log-densities are divided by.
    """

    anchor: float = setting(1.0, above=0)
    temperature: float = setting(50.0, above=0)


@method("stata", StatASettings)
class StatA(WindowMethod):
    settings: StatASettings

    def assign(self, features: Tensor, zero_shot: Tensor) -> Tensor:
        near, means = neighbours(features), self.text
        first = self.spread(features, zero_shot.exp()).expand_as(means)
        logits, variances = zero_shot, first
        for _ in range(PASSES):
            density = log_density(features, means, variances) / self.settings.temperature
            logits = zero_shot + density + near @ torch.softmax(logits, dim=-1)
            means, variances = self.gaussians(features, torch.softmax(logits, dim=-1), first)
        return logits

    def spread(self, features: Tensor, probs: Tensor) -> Tensor:
        """Variance of the images around the texts, by direction [d]: the anchor's, shared by the classes."""
        squares = squared_distances(features, probs, self.text).sum(dim=0)
        return (squares / len(features)).clamp_min(TINY)

    def gaussians(self, features: Tensor, probs: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Means of length 1 and variances [K, d]: the images', and the text's by how few images there are."""
        counts = torch.bincount(probs.argmax(dim=1), minlength=len(self.text)).to(probs)[:, None]
        weight = counts / (counts + self.settings.anchor)
        shares = probs / probs.sum(dim=0).clamp_min(TINY)
        means = F.normalize(weight * (shares.T @ features) + (1 - weight) * self.text, dim=-1)
        around = first + (self.text - means).square()
        variances = weight * squared_distances(features, shares, means) + (1 - weight) * around
        return means, variances.clamp_min(TINY)


def squared_distances(features: Tensor, probs: Tensor, means: Tensor) -> Tensor:
    """Σ_i p_ik (x_i − μ_k)² by direction [K, d]."""
    counts = probs.sum(dim=0)[:, None]
    return probs.T @ features.square() - 2 * means * (probs.T @ features) + counts * means.square()


def log_density(features: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """Of each image in each class [n, K], but for a constant."""
    precision = 1 / variances
    square = features.square() @ precision.T - 2 * features @ (means * precision).T
    return -0.5 * (square + (means.square() * precision + variances.log()).sum(dim=1))
