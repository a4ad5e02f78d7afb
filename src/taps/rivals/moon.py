"""MOON: von Mises-Fisher mixtures over the last images; the rarer a class, the more its text holds it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.learning.losses import entropies
from taps.methods import method
from taps.rivals.window import PASSES, WindowMethod, WindowSettings, neighbours

TINY = 1e-6


class MoonSettings(WindowSettings):
    """MOON has no settings but the batch."""


@method("moon", MoonSettings)
class Moon(WindowMethod):
    settings: MoonSettings

    def assign(self, features: Tensor, zero_shot: Tensor) -> Tensor:
        near, probs = neighbours(features), zero_shot.exp()
        pull = 1 / (probs.mean(dim=0) * probs.max(dim=0).values).sqrt().clamp_min(TINY)
        likeness = (probs * (features @ self.text.T)).sum(dim=1).mean()  # of images and their texts
        anchors = (pull * likeness.clamp(TINY, 1 - TINY))[:, None] * self.text
        logits = zero_shot
        for _ in range(PASSES):
            probs = torch.softmax(logits, dim=-1)
            sure = 1 - entropies(logits) / max(math.log(logits.shape[1]), TINY)
            weights = sure[:, None] * probs
            sums = weights.T @ features + anchors
            lengths: Tensor = torch.linalg.vector_norm(sums, dim=1)
            resultant = (lengths / (weights.sum(dim=0) + pull)).clamp(TINY, 1 - TINY)
            density = log_density(features, F.normalize(sums, dim=1), resultant)
            logits = zero_shot + density + near @ probs
        return logits


def log_density(features: Tensor, directions: Tensor, resultant: Tensor) -> Tensor:
    """Of each image in each class [n, K], but for a constant; κ from the mean resultant length [K]."""
    dim = features.shape[1]
    concentration = (dim * resultant - resultant**3) / (1 - resultant**2)
    order = dim / 2 - 1
    scale = order * concentration.log() - log_bessel(order, concentration)
    return features @ directions.T * concentration + scale


def log_bessel(order: float, x: Tensor) -> Tensor:
    """ln I_order(x), by Debye's expansion for large orders to its second term.

    >>> round(float(log_bessel(255.0, torch.tensor(1000.0, dtype=torch.float64))), 4)
    963.2719
    """
    ratio = x / order
    root = torch.sqrt(1 + ratio**2)
    slope = 1 / root
    second = torch.log1p((3 * slope - 5 * slope**3) / (24 * order))
    power = order * (root + torch.log(ratio / (1 + root)))
    return power - 0.5 * math.log(2 * math.pi * order) - 0.5 * root.log() + second
