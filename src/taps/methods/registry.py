"""Every method by its name: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from taps.clip import Clip
from taps.errors import SettingsError
from taps.methods import taps, tpt, zero_shot
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
    "tpt": Registered(tpt.TptSettings, tpt.build, "One entropy step on the text context for each image."),
    "taps": Registered(
        AskSettings, taps.build, "The paper's method: MaPLe prompts, entropy and labelled memory."
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
