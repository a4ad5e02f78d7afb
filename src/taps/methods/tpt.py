"""TPT and what it is put on top of: a context takes one entropy step for each image, then is forgotten."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from taps.active.running_quantile import Quantile
from taps.clip import Clip
from taps.methods.ranges import setting
from taps.methods.registry import method
from taps.methods.settings import TuneSettings
from taps.methods.tuner import Tuner
from taps.prompts.choose import choose_prompts, trained_prompts


@dataclass(frozen=True)
class TptSettings(TuneSettings):
    """TPT's published values."""

    lr: float | None = 5e-3


@dataclass(frozen=True)
class SkipSettings(TptSettings):
    """TPT that does not learn from the most uncertain images.

    Attributes:
        skip: Share of images, those of highest entropy so far, that is not learned from.
        warmup: Images before that share is estimated; a top hundredth takes a hundred.
    """

    skip: float = setting(0.01, above=0, below=1)
    warmup: int = setting(100, at_least=0)


@method("tpt", TptSettings, prompts="hand")
def build(clip: Clip, classes: tuple[str, ...], settings: TptSettings, seed: int) -> Tuner:
    """One entropy step on the text context for each image."""
    return Tuner(clip, classes, choose_prompts(clip, settings.prompts, default="hand"), settings, seed=seed)


@method("tpt_skip", SkipSettings, prompts="hand")
def build_skip(clip: Clip, classes: tuple[str, ...], settings: SkipSettings, seed: int) -> Tuner:
    """TPT without updates on the 1 % most uncertain images (Table 1)."""
    prompts = choose_prompts(clip, settings.prompts, default="hand")
    # Until the share is estimated the threshold is ln K, which no entropy exceeds.
    gate = Quantile(settings.skip, settings.warmup, tau0=math.log(len(classes)))
    return Tuner(clip, classes, prompts, settings, seed=seed, gate=gate)


def build_trained(
    clip: Clip, classes: tuple[str, ...], settings: TptSettings, seed: int, *, family: str
) -> Tuner:
    """TPT on top of trained prompts of one family."""
    prompts = trained_prompts(clip, settings.prompts, family=family)
    return Tuner(clip, classes, prompts, settings, seed=seed)


for family, line in (
    ("coop", "TPT on top of CoOp's context."),
    ("maple", "TPT on top of MaPLe's prompts."),
):
    method(f"{family}+tpt", TptSettings, prompts=family, line=line)(partial(build_trained, family=family))
