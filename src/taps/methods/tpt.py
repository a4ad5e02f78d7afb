"""TPT: the text context takes one entropy step for each image, then is forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from taps.clip import Clip
from taps.methods.settings import TuneSettings
from taps.methods.tuner import Tuner


@dataclass(frozen=True)
class TptSettings(TuneSettings):
    """TPT's published values."""

    lr: float | None = 5e-3


def build(clip: Clip, classes: tuple[str, ...], settings: TptSettings, seed: int) -> Tuner:
    return Tuner(clip, classes, settings, default="hand", seed=seed)
