"""OnZeta (Qian & Hu, ECCV 2024): zero-shot, balanced over the stream, teaches a vision classifier."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.methods import EncodedImage, FeatureMethod, State, TextSettings, method, setting

EXPECTED = 1000


class OnzetaSettings(TextSettings):
    """OnZeta's published values.

    Attributes:
        expected: Images after which the vision classifier has its full weight. OnZeta takes the length of the
            stream, which is not known here.
        share: α, times 1/K: the share of the stream that every class is helped to.
        share_rate: How fast it is helped.
        lr: Learning rate of the vision classifier.
        temperature: Of the vision classifier.
        weight_most: β, the vision classifier's weight at the end.
    """

    expected: int = setting(EXPECTED, at_least=1)
    share: float = setting(1.0, at_least=0)
    share_rate: float = setting(20.0, at_least=0)
    lr: float = setting(0.5, at_least=0)
    temperature: float = setting(0.04, above=0)
    weight_most: float = setting(0.8, at_least=0, at_most=1)


@method("onzeta", OnzetaSettings)
class Onzeta(FeatureMethod):
    settings: OnzetaSettings

    def start(self) -> State:
        return {
            "classifier": self.text.clone(),
            "help": self.text.new_zeros(len(self.text)),
            "seen": self.text.new_zeros(()),
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        settings, state, feature = self.settings, self.state, seen.feature
        state["seen"] += 1
        time = float(state["seen"])
        belief = torch.softmax(seen.logits[0] + state["help"], dim=-1)
        missing = belief - settings.share / len(belief)
        state["help"] = (state["help"] - settings.share_rate / math.sqrt(time) * missing).clamp_min(0)
        vision = torch.softmax(state["classifier"] @ feature / settings.temperature, dim=-1)
        step = settings.lr / (math.sqrt(time) * settings.temperature)
        moved = state["classifier"] - step * torch.outer(vision - belief, feature)
        state["classifier"] = F.normalize(moved, dim=-1)
        expected = settings.expected or EXPECTED  # with a head, None where nobody knows
        weight = settings.weight_most * math.sqrt(min(1.0, time / expected))
        mixed = weight * vision + (1 - weight) * belief
        return torch.log(mixed.clamp_min(torch.finfo(mixed.dtype).tiny))
