"""Every method by its name: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from taps.clip import Clip
from taps.errors import SettingsError
from taps.methods import cocoop_tpt, ensemble, frozen, plus, promptalign, taps, tda, tpt, zero_shot
from taps.methods.base import Method
from taps.methods.settings import AskSettings, TextSettings, make_settings

Build = Callable[[Clip, tuple[str, ...], Any, int], Method]


@dataclass(frozen=True)
class Registered:
    """A method's settings, how it is built, and what `taps methods` says of it."""

    settings: type[TextSettings]
    build: Build
    line: str


METHODS: dict[str, Registered] = {
    "zero_shot": Registered(
        TextSettings, zero_shot.build, "CLIP with 'a photo of a {}.'; nothing is learned."
    ),
    "view_ensemble": Registered(
        ensemble.EnsembleSettings, ensemble.build, "Mean probability of the confident views; no gradient."
    ),
    "source": Registered(
        frozen.FrozenSettings, frozen.build_source, "The trained prompts TAPS starts from, not adapted."
    ),
    "tpt": Registered(tpt.TptSettings, tpt.build, "One entropy step on the text context for each image."),
    "tpt_skip": Registered(
        tpt.SkipSettings, tpt.build_skip, "TPT without updates on the 1 % most uncertain images (Table 1)."
    ),
    "coop": Registered(frozen.FrozenSettings, frozen.trained("coop"), "CoOp: a trained text context."),
    "coop+tpt": Registered(tpt.TptSettings, tpt.trained_tpt("coop"), "TPT on top of CoOp's context."),
    "cocoop": Registered(
        frozen.FrozenSettings,
        frozen.trained("cocoop"),
        "CoCoOp: a trained text context that follows the image.",
    ),
    "cocoop+tpt": Registered(
        cocoop_tpt.CocoopTptSettings,
        cocoop_tpt.build,
        "TPT on top of the context CoCoOp writes for the image.",
    ),
    "proda": Registered(
        frozen.FrozenSettings,
        frozen.trained("proda"),
        "ProDA: a trained bank of contexts, their mean classifies.",
    ),
    "maple": Registered(
        frozen.FrozenSettings, frozen.trained("maple"), "MaPLe: trained prompts in both towers."
    ),
    "maple+tpt": Registered(tpt.TptSettings, tpt.trained_tpt("maple"), "TPT on top of MaPLe's prompts."),
    "promptalign": Registered(
        promptalign.PromptAlignSettings,
        promptalign.build,
        "MaPLe prompts, entropy and alignment to the source set's statistics.",
    ),
    "taps": Registered(
        AskSettings, taps.build, "The paper's method: MaPLe prompts, entropy and labelled memory."
    ),
    "taps+": Registered(
        plus.TapsPlusSettings, plus.plus(taps.build), "TAPS, and a head that learns from every answer."
    ),
    "zero_shot+": Registered(
        plus.ZeroShotPlusSettings, plus.plus(zero_shot.build), "Zero-shot CLIP, and the same head."
    ),
    "view_ensemble+": Registered(
        plus.EnsemblePlusSettings, plus.plus(ensemble.build), "The confident views' mean, and the same head."
    ),
    "tda": Registered(tda.TdaSettings, tda.build, "A training-free cache of confident and of unsure images."),
    "zero": Registered(
        ensemble.ZeroSettings, ensemble.build_vote, "The vote of the confident views; no gradient."
    ),
}


def register(name: str, settings: type[TextSettings], build: Build, line: str) -> None:
    """Add a method of your own under a new name."""
    if name in METHODS:
        raise SettingsError(f"There is a method named {name!r} already; choose another name.")
    METHODS[name] = Registered(settings, build, line)


def find_method(name: str) -> Registered:
    if name not in METHODS:
        raise SettingsError(f"There is no method named {name!r}; use one of {', '.join(METHODS)}.")
    return METHODS[name]


def method_settings(name: str, values: Mapping[str, Any]) -> TextSettings:
    """The settings of a method from keyword arguments."""
    return make_settings(find_method(name).settings, values, method=name)
