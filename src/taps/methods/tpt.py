"""TPT and what it is put on top of: a context takes one entropy step for each image, then is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taps.active.policy import Quantile
from taps.clip import Clip
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

    skip: float = 0.01
    warmup: int = 100


def build(clip: Clip, classes: tuple[str, ...], settings: TptSettings, seed: int) -> Tuner:
    return Tuner(clip, classes, choose_prompts(clip, settings.prompts, default="hand"), settings, seed=seed)


def build_skip(clip: Clip, classes: tuple[str, ...], settings: SkipSettings, seed: int) -> Tuner:
    prompts = choose_prompts(clip, settings.prompts, default="hand")
    # Until the share is estimated the threshold is ln K, which no entropy exceeds.
    gate = Quantile(settings.skip, settings.warmup, tau0_relative=1.0, classes=len(classes))
    return Tuner(clip, classes, prompts, settings, seed=seed, gate=gate)


def trained_tpt(family: str) -> Callable[[Clip, tuple[str, ...], TptSettings, int], Tuner]:
    """A builder for TPT on top of trained prompts of one family."""

    def build(clip: Clip, classes: tuple[str, ...], settings: TptSettings, seed: int) -> Tuner:
        prompts = trained_prompts(clip, settings.prompts, family=family)
        return Tuner(clip, classes, prompts, settings, seed=seed)

    return build
