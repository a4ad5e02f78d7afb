"""TPT (Shu et al., NeurIPS 2022), on a hand-written or a trained context: one entropy step for each image."""

from __future__ import annotations

import math

from taps.asking.dynamic import Dynamic
from taps.methods import TuneSettings, method, setting
from taps.methods.taps import PromptTuner
from taps.model.clip import Clip


class TptSettings(TuneSettings):
    """TPT's published values."""

    lr: float | None = 5e-3


class SkipSettings(TptSettings):
    """TPT that does not learn from the most uncertain images.

    Attributes:
        skip: Share of normal entropies above the threshold, the mean so far and z standard deviations.
        warmup: The first image whose threshold is no longer ln K.
    """

    skip: float = setting(0.01, above=0, below=1)
    warmup: int = setting(30, at_least=0)


@method("tpt", TptSettings, prompts="hand")
class Tpt(PromptTuner):
    """TPT (Shu et al., NeurIPS 2022): one entropy step on the text context for each image."""


class CoopTptSettings(TptSettings):
    """TPT's, on CoOp's context."""


@method("coop+tpt", CoopTptSettings, prompts="coop")
class CoopTpt(PromptTuner):
    """TPT on top of CoOp's context."""

    starts_from = "coop"


class MapleTptSettings(TptSettings):
    """TPT's, on MaPLe's prompts."""


@method("maple+tpt", MapleTptSettings, prompts="maple")
class MapleTpt(PromptTuner):
    """TPT on top of MaPLe's prompts."""

    starts_from = "maple"


@method("tpt_skip", SkipSettings, prompts="hand")
class TptSkip(PromptTuner):
    """TPT without updates on the 1 % most uncertain images (Table 1)."""

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: SkipSettings, seed: int) -> None:
        gate = Dynamic(settings.skip, settings.warmup, tau0=math.log(len(classes)))  # no entropy is above it
        gate.z_high = gate.z_selection  # no budget to keep, so Algorithm 1's switch has no part here
        super().__init__(clip, classes, settings, seed, gate=gate)
