"""MEMO (Zhang et al., NeurIPS 2022): one step of layer norms on the entropy of the views' mean prediction."""

from __future__ import annotations

from torch import Tensor

from taps.learning.losses import mean_entropy
from taps.methods import method
from taps.rivals.tower import TowerSettings, TowerTuner


class MemoSettings(TowerSettings):
    """Those of every method that tunes the vision tower."""


@method("memo", MemoSettings)
class Memo(TowerTuner):
    @property
    def stateless(self) -> bool:
        return self.period == 1

    def loss(self, logits: Tensor) -> Tensor:
        return mean_entropy(logits)
