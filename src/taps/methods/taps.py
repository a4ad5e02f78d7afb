"""TAPS: MaPLe prompts, one step on entropy and labelled memory an image, an expert asked now and then."""

from __future__ import annotations

from taps.methods.registry import method
from taps.methods.settings import AskSettings
from taps.methods.tuner import Tuner


@method("taps", AskSettings, prompts="any", by_dataset=True)
class Taps(Tuner):
    """The paper's method: MaPLe prompts, entropy and labelled memory."""

    starts_from = "any"
