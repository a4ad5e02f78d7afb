"""C-TPT and O-TPT: TPT's step, which also keeps the classes' texts apart, so that confidence stays honest."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.methods import EncodedImage, method, setting
from taps.methods.contexts import ContextSettings, ContextTuner


class CtptSettings(ContextSettings):
    """C-TPT's published values, those for fine-grained sets.

    Attributes:
        spread: λ, weight of the texts' mean distance from their centre, which is to be large.
    """

    spread: float = setting(50.0, at_least=0)


class OtptSettings(ContextSettings):
    """O-TPT's published values, those for fine-grained sets.

    Attributes:
        orthogonal: λ, weight of the texts' squared cosines with each other, which are to be small.
    """

    orthogonal: float = setting(18.0, at_least=0)


@method("ctpt", CtptSettings, prompts="hand")
class Ctpt(ContextTuner):
    """TPT that also spreads the class texts, for calibration."""

    settings: CtptSettings

    def loss(self, seen: EncodedImage, text: Tensor) -> Tensor:
        apart: Tensor = torch.linalg.vector_norm(text - text.mean(dim=0), dim=-1)
        return super().loss(seen, text) - self.settings.spread * apart.mean()


@method("otpt", OtptSettings, prompts="hand")
class Otpt(ContextTuner):
    """TPT that also makes the class texts orthogonal, for calibration."""

    settings: OtptSettings

    def loss(self, seen: EncodedImage, text: Tensor) -> Tensor:
        alike = text @ text.T - torch.eye(len(text)).to(text)
        return super().loss(seen, text) + self.settings.orthogonal * alike.square().sum()
