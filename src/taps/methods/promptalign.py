"""PromptAlign: one step of MaPLe prompts on entropy and on alignment to the source statistics."""

from __future__ import annotations

from taps.methods import TuneSettings, method
from taps.methods.taps import PromptTuner


class PromptAlignSettings(TuneSettings):
    """Alignment at the weight PromptAlign gives it; its own learning rates are presets."""

    weight_coarse: float = 1.0


@method("promptalign", PromptAlignSettings, prompts="maple", by_dataset=True)
class PromptAlign(PromptTuner):
    starts_from = "maple"
