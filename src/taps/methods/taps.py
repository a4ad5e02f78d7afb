"""TAPS: one step of MaPLe prompts on entropy and on the labelled memory for each image."""

from __future__ import annotations

from taps.methods import AskSettings, method
from taps.methods.tuner import Tuner


class TapsSettings(AskSettings):
    """The paper's: what prompts, memory and questions need."""


@method("taps", TapsSettings, prompts="any", by_dataset=True)
class Taps(Tuner):
    starts_from = "any"
