"""Zero-shot CLIP: a hand-written sentence per class, one view, nothing learned."""

from __future__ import annotations

from taps.clip import Clip
from taps.methods.frozen import Frozen, view_zero
from taps.methods.settings import TextSettings


def build(clip: Clip, classes: tuple[str, ...], settings: TextSettings, seed: int) -> Frozen:
    return Frozen(clip, classes, view_zero, template=settings.template)
