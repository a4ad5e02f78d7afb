"""MTA: the views' features have a mode, found by mean shift with a weight for each view; it is classified."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods.features import FeatureMethod, Seen
from taps.methods.ranges import setting
from taps.methods.registry import method
from taps.methods.settings import ViewSettings

NEAREST = 0.3  # share of the other views that set the bandwidth of one
ROUNDS = 5  # of the weights, of the mode, and of both by turns


@dataclass(frozen=True)
class MtaSettings(ViewSettings):
    """MTA's published values.

    Attributes:
        affinity: λ_q, how much views that predict alike support each other.
        temperature: λ_y, of the views' weights.
    """

    affinity: float = setting(4.0, at_least=0)
    temperature: float = setting(0.2, above=0)


@method("mta", MtaSettings)
class Mta(FeatureMethod):
    """The mode of the views' features, found with a weight for each view; no gradient."""

    settings: MtaSettings

    def adapt(self, seen: Seen) -> Tensor:
        probs = torch.softmax(seen.logits, dim=-1)
        mode = find_mode(seen.features, probs @ probs.T, self.settings.affinity, self.settings.temperature)
        return self.logits(mode[None])[0]


def find_mode(features: Tensor, alike: Tensor, affinity: float, temperature: float) -> Tensor:
    """The mode of some features [n, d], from the first on; `alike` [n, n] says which predict alike."""
    widths = bandwidths(features)
    weights = torch.full_like(features[:, 0], 1 / len(features))
    mode = features[0]
    for _ in range(ROUNDS):
        density = kernel(features, mode, widths)
        for _ in range(ROUNDS):
            weights = torch.softmax((density + affinity * alike @ weights) / temperature, dim=0)
        for _ in range(ROUNDS):
            mode = F.normalize((kernel(features, mode, widths) * weights) @ features, dim=0)
    return mode


def bandwidths(features: Tensor) -> Tensor:
    """Half the mean squared distance of each view to its nearest 30 % of the others, itself left out [n]."""
    squares = torch.cdist(features, features).square()
    count = max(1, int(NEAREST * (len(features) - 1)))
    nearest = squares.sort(dim=1).values[:, 1 : count + 1]
    return 0.5 * nearest.sum(dim=1) / count


def kernel(features: Tensor, mode: Tensor, widths: Tensor) -> Tensor:
    squares = (features - mode).square().sum(dim=1)
    return torch.exp(-squares / (2 * widths.clamp_min(1e-12)))
