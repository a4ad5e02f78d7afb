"""TAPS: MaPLe prompts, one step on entropy and labelled memory an image, an expert asked now and then."""

from __future__ import annotations

from taps.clip import Clip
from taps.methods.registry import method
from taps.methods.settings import AskSettings
from taps.methods.tuner import Tuner
from taps.prompts.choose import choose_prompts


@method("taps", AskSettings, prompts="any", by_dataset=True)
def build(clip: Clip, classes: tuple[str, ...], settings: AskSettings, seed: int) -> Tuner:
    """The paper's method: MaPLe prompts, entropy and labelled memory."""
    return Tuner(clip, classes, choose_prompts(clip, settings.prompts, default="maple"), settings, seed=seed)
