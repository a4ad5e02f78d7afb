"""TENT (Wang et al., ICLR 2021): one step of layer norms on the views' mean entropy."""

from __future__ import annotations

from torch import Tensor

from taps.learning.losses import entropies
from taps.methods import method
from taps.rivals.tower import TowerSettings, TowerTuner


class TentSettings(TowerSettings):
    """Those of every method that tunes the vision tower."""


@method("tent", TentSettings)
class Tent(TowerTuner):
    def loss(self, logits: Tensor) -> Tensor:
        return entropies(logits).mean()
