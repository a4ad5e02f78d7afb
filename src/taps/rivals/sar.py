"""SAR (Niu et al., ICLR 2023): sharpness-aware entropy steps on sure views, and a reset at collapse."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from taps.learning.losses import entropies, mean_entropy
from taps.learning.optimiser import all_finite
from taps.methods import method, reset_setting, setting
from taps.model.clip import Clip
from taps.model.prompts.families import Parameters
from taps.rivals.tower import TowerSettings, TowerTuner


class SarSettings(TowerSettings):
    """SAR's published values for vision transformers and one image at a time.

    Attributes:
        momentum: Of SGD.
        sure_below: Views of more than this share of ln K in entropy are not learned from.
        radius: ρ, how far away the gradient is taken.
        collapsed_below: Running entropy of the steps below which everything starts afresh.
        frozen_blocks: How many of the last blocks, with the norm after them, are left alone.
    """

    lr: float = 1e-3 / 32
    reset: str = reset_setting("never")
    momentum: float = setting(0.9, at_least=0, below=1)
    sure_below: float = setting(0.4, above=0)
    radius: float = setting(0.05, at_least=0)
    collapsed_below: float = setting(0.2, at_least=0)
    frozen_blocks: int = setting(3, at_least=0)


@method("sar", SarSettings)
class Sar(TowerTuner):
    settings: SarSettings
    saved = (*TowerTuner.saved, "running", "collapses")

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: SarSettings, seed: int) -> None:
        super().__init__(clip, classes, settings, seed)
        self.limit = settings.sure_below * math.log(len(classes))
        self.running: float | None = None  # entropy of the steps
        self.collapses = 0

    def tuned(self, tower: nn.Module, seed: int) -> Parameters:
        blocks = len(tower.transformer.resblocks)  # type: ignore[arg-type, union-attr]
        last = range(max(1, blocks - self.settings.frozen_blocks), blocks)
        frozen = tuple(f"transformer.resblocks.{block}." for block in last)
        if self.settings.frozen_blocks:
            frozen = (*frozen, "ln_post.")
        return {
            name: value for name, value in super().tuned(tower, seed).items() if not name.startswith(frozen)
        }

    def loss(self, logits: Tensor) -> Tensor:
        """Mean entropy of the sure views; 0 where there is none."""
        found = entropies(logits)
        sure = found < self.limit
        return (found * sure).sum() / sure.sum().clamp_min(1)

    def adapt(self, images: Tensor) -> tuple[float, bool]:
        gradients, logits, chosen = self.gradients(self.parameters, images, self.settings.fraction)
        entropy = float(mean_entropy(logits[chosen]))
        sure = images[chosen][entropies(logits[chosen]) < self.limit]
        loss = math.nan  # where no view is sure: the gradients are 0 there, and the velocity goes on
        if len(sure) and bool(all_finite(gradients)):
            gradients, loss = self.nearby(gradients, sure)
        if not bool(all_finite(gradients)):
            return entropy, False
        self.sgd_step(gradients, self.settings.momentum)
        self.watch(loss)
        return entropy, not math.isnan(loss)

    def nearby(self, gradients: Parameters, sure: Tensor) -> tuple[Parameters, float]:
        """Gradient and mean entropy of the views that are sure a little up the gradient."""
        length = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
        away = self.settings.radius / (length + 1e-12)
        moved = {name: value + away * gradients[name] for name, value in self.parameters.items()}
        gradients, logits, _ = self.gradients(moved, sure, 1.0)
        found = entropies(logits)
        return gradients, float(found[found < self.limit].mean())

    def watch(self, loss: float) -> None:
        """Reset the weights where the running entropy shows that they have collapsed.

        As in the authors' code, the velocity and the running entropy stay: resets go on until it has risen.
        """
        if not math.isnan(loss):
            self.running = loss if self.running is None else 0.9 * self.running + 0.1 * loss
        if self.running is not None and self.running < self.settings.collapsed_below:
            self.collapses += 1
            self.parameters = self.start

    def summary(self) -> dict[str, Any]:
        return super().summary() | {"collapses": self.collapses}
