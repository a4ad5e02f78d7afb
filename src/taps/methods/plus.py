"""`NAME+`: the method NAME with a label head on it (`taps.methods.headed`).

`taps+`, `zero_shot+` and `view_ensemble+` are listed; `find_method` makes others, such as `tda+`.
"""

from __future__ import annotations

from typing import Any

from taps.default import FRACTION, VIEWS
from taps.methods import Settings, find_method
from taps.methods.ensemble import EnsembleSettings
from taps.methods.headed import Headed, HeadedSettings
from taps.methods.registry import METHODS, Registered, register_head
from taps.methods.taps import TapsSettings
from taps.methods.zero_shot import ZeroShotSettings
from taps.model.clip import Clip


class TapsPlusSettings(HeadedSettings, TapsSettings):
    """Those of TAPS and of the head."""


class ZeroShotPlusSettings(HeadedSettings, ZeroShotSettings):
    """Those of zero-shot CLIP and of the head."""


class ViewEnsemblePlusSettings(HeadedSettings, EnsembleSettings):
    """Those of the views' mean and of the head; of fewer views, a larger share is kept."""

    views: int = VIEWS
    fraction: float = FRACTION


def with_head(name: str, settings: type[Settings] | None = None, *, line: str | None = None) -> Registered:
    """The method `name+`, for any method that has `head_inputs`; `line` is what `taps methods` prints.

    Without a settings class, one is made from the head's and the method's own.
    """
    inner = find_method(name)

    def build(clip: Clip, classes: tuple[str, ...], settings: Any, seed: int) -> Headed:
        return Headed(inner.build(clip, classes, settings, seed), classes, settings, seed)

    settings = settings or type(f"{inner.settings.__name__}Plus", (HeadedSettings, inner.settings), {})
    line = line or f"`{name}` with a label head, which learns from every answer."
    return Registered(f"{name}+", build, settings, line, prompts=inner.prompts)


for inner, own in (
    ("taps", TapsPlusSettings),
    ("zero_shot", ZeroShotPlusSettings),
    ("view_ensemble", ViewEnsemblePlusSettings),
):
    METHODS.enter(f"{inner}+", with_head(inner, own), __name__)
register_head(with_head)
