"""Zero-shot CLIP: a hand-written sentence per class, one view, nothing learned."""

from __future__ import annotations

from taps.methods import TextSettings, method
from taps.methods.frozen import Frozen, view_zero
from taps.model.clip import Clip


class ZeroShotSettings(TextSettings):
    """A template is all it has."""


@method("zero_shot", ZeroShotSettings, baseline=1)
def build(clip: Clip, classes: tuple[str, ...], settings: ZeroShotSettings, seed: int) -> Frozen:
    """CLIP with 'a photo of a {}.'; nothing is learned."""
    return Frozen(clip, classes, view_zero, settings)
