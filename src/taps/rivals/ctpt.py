"""C-TPT and O-TPT: TPT's loss with a term that spreads the class texts, or makes them orthogonal."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.methods import EncodedImage, method, setting
from taps.methods.contexts import ContextSettings, ContextTuner


class CtptSettings(ContextSettings):
    """C-TPT's for fine-grained sets; `spread` is λ, weight of the texts' mean distance from their centre."""

    spread: float = setting(50.0, at_least=0)


class OtptSettings(ContextSettings):
    """O-TPT's for fine-grained sets; `orthogonal` is λ, weight of the texts' squared cosines."""

    orthogonal: float = setting(18.0, at_least=0)


@method("ctpt", CtptSettings, prompts="hand")
class Ctpt(ContextTuner):
    """C-TPT (Yoon et al., ICLR 2024): TPT that also spreads the class texts, for calibration."""

    settings: CtptSettings

    def loss(self, seen: EncodedImage, text: Tensor) -> Tensor:
        apart: Tensor = torch.linalg.vector_norm(text - text.mean(dim=0), dim=-1)
        return super().loss(seen, text) - self.settings.spread * apart.mean()


@method("otpt", OtptSettings, prompts="hand")
class Otpt(ContextTuner):
    """O-TPT (Sharifdeen et al., CVPR 2025): TPT that also makes the class texts orthogonal."""

    settings: OtptSettings

    def loss(self, seen: EncodedImage, text: Tensor) -> Tensor:
        alike = text @ text.T - torch.eye(len(text)).to(text)
        return super().loss(seen, text) + self.settings.orthogonal * alike.square().sum()
