"""`taps+` and its kin: any method, with a label head on it (`taps.methods.headed`)."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

from taps.clip import Clip
from taps.methods import ensemble, taps, zero_shot  # noqa: F401  (they register what heads are put on)
from taps.methods.headed import Headed, HeadedSettings
from taps.methods.registry import find_method, method


def with_head(name: str, *, line: str, **defaults: float) -> None:
    """Register the method `name+`: the same with a head, for any method that has a `footing`.

    Args:
        name: Of the method.
        line: What `taps methods` says of it.
        **defaults: Settings whose default is another than without a head.
    """
    inner = find_method(name)

    def build(clip: Clip, classes: tuple[str, ...], settings: Any, seed: int) -> Headed:
        return Headed(inner.build(clip, classes, settings, seed), classes, settings, seed)

    own = [(key, type(value).__name__, value) for key, value in defaults.items()]
    settings = make_dataclass(
        f"{inner.settings.__name__}Plus", own, bases=(HeadedSettings, inner.settings), frozen=True
    )
    method(f"{name}+", settings, prompts=inner.prompts, line=line)(build)


with_head("taps", line="TAPS, and a head that learns from every answer.")
with_head("zero_shot", line="Zero-shot CLIP, and the same head.")
# Beyond 16 views the head gains little, and time grows with them; of so few, more than a tenth is kept.
with_head("view_ensemble", line="The confident views' mean, and the same head.", views=16, fraction=0.25)
