"""Every method by its name. A method enters itself where it is defined: `@method("tda", TdaSettings)`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from taps.errors import SettingsError
from taps.methods.base import Method
from taps.methods.settings import Asking, Settings
from taps.model.clip import Clip
from taps.registry import Registry, nearest

Build = Callable[[Clip, tuple[str, ...], Any, int], Method]
B = TypeVar("B", bound=Build)


@dataclass(frozen=True)
class Registered:
    """What is known of a method.

    Attributes:
        name: What users type.
        build: Makes it: `build(clip, classes, settings, seed)`.
        settings: Its settings.
        line: What `taps methods` prints of it.
        prompts: Which learned prompts it starts from. None: it takes none. "hand": the words "a photo of a",
            whatever others are given. "optional": those given, else the template's words. "any": those given,
            else MaPLe's. Or a family's name: trained ones of that family, and no others.
        baseline: Its place among those that stand in every table, from 1 on; 0 for none.
        by_dataset: Whether it was published with settings for each data set (`taps.methods.presets`).
    """

    name: str
    build: Build
    settings: type[Settings]
    line: str
    prompts: str | None = None
    baseline: int = 0
    by_dataset: bool = False

    @property
    def asks(self) -> bool:
        return issubclass(self.settings, Asking)

    @property
    def learned(self) -> bool:
        """Whether a learned context always takes the place of hand-written class texts."""
        return self.prompts not in (None, "optional")

    @property
    def known(self) -> set[str]:
        """Names of its settings; `texts` is none where a learned context takes their place."""
        return {field.name for field in fields(self.settings)} - ({"texts"} if self.learned else set())


METHODS = Registry[Registered]("method", "taps.methods", "taps.rivals")
_HEADS: list[Callable[[str], Registered]] = []


def method(
    name: str,
    settings: type[Settings],
    *,
    prompts: str | None = None,
    line: str | None = None,
    baseline: int = 0,
    by_dataset: bool = False,
) -> Callable[[B], B]:
    """Give a method its name; every command knows it from then on.

    Stands above a class, or a function, that is called with the model, the class names, the settings and the
    seed. `line` is the first line of its docstring, or of its module's; for the others see `Registered`.
    """

    def registered(build: B) -> B:
        home = getattr(build, "func", build).__module__  # also of a `functools.partial`
        module = sys.modules.get(home)
        first = (line or build.__doc__ or (module and module.__doc__) or "").strip().partition("\n")[0]
        found = Registered(name, build, settings, first, prompts, baseline, by_dataset)
        METHODS.enter(name, found, home)
        return build

    return registered


def all_methods() -> dict[str, Registered]:
    """Every method by name: the baselines, then the others by the alphabet; plugins' too."""
    return dict(sorted(METHODS.items(), key=lambda item: (item[1].baseline or 99, item[0])))


def list_methods() -> list[str]:
    """Names of all methods.

    >>> "taps" in list_methods()
    True
    """
    return list(all_methods())


def find_method(name: str) -> Registered:
    """A method by its name; `name+` is the method with a head."""
    if name not in METHODS and name.removesuffix("+") in METHODS:
        return _headed(name.removesuffix("+"))
    return METHODS[name]


@functools.cache
def _headed(name: str) -> Registered:
    return _HEADS[0](name)


def register_head(make: Callable[[str], Registered]) -> None:
    """Say how `NAME+` is made of any method NAME; `taps.methods.plus` does, which imports this module."""
    _HEADS[:] = [make]


def method_settings(name: str, values: Mapping[str, Any]) -> Settings:
    """The settings of a method from keyword arguments; unknown names and bad values are refused."""
    found, values = find_method(name), dict(values)
    if found.learned and values.pop("texts", None) is not None:
        raise SettingsError(
            f"The method {name!r} has a learned context before the class name and takes no texts; leave them "
            "out, or use a method with hand-written ones, such as 'zero_shot'."
        )
    unknown = sorted(values.keys() - found.known)
    if unknown:
        raise SettingsError(
            f"The method {name!r} has no setting {', '.join(unknown)}; its settings are "
            f"{', '.join(sorted(found.known))}.{nearest(unknown[0], found.known)}"
        )
    return found.settings(**{name: _plain(value) for name, value in values.items()})


def chosen_method(method: str | Settings, values: Mapping[str, Any]) -> tuple[str, Settings]:
    """A method's name and its settings: by name and keywords, or by a settings object alone."""
    if isinstance(method, str):
        return method, method_settings(method, values)
    kind = type(method)
    names = [known.name for known in all_methods().values() if known.settings is kind]
    if len(names) != 1:
        found = f"those of {', '.join(names)}" if names else "those of no method"
        raise SettingsError(f"{kind.__name__} are {found}; name the method, and give settings by keyword.")
    if values:
        raise SettingsError(
            f"Settings are given twice: in {kind.__name__} and as {', '.join(sorted(values))}; "
            f"put all of them into {kind.__name__}."
        )
    return names[0], method_settings(
        names[0], {each.name: getattr(method, each.name) for each in fields(method)}
    )


def with_length(name: str, values: Mapping[str, Any], images: int) -> dict[str, Any]:
    """Settings of a method; where it asks, `expected` is the number of images unless they give another.

    >>> with_length("view_ensemble+", {"rate": 0.1}, images=300), with_length("zero_shot", {}, images=300)
    ({'expected': 300, 'rate': 0.1}, {})
    """
    return ({"expected": images} if "pace" in find_method(name).known else {}) | dict(values)


def _plain(value: Any) -> Any:
    """Python's own number for one of numpy's: ranges and saved states take no others."""
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    if isinstance(value, list | tuple):
        return type(value)(_plain(each) for each in value)
    return value.item() if isinstance(value, np.generic) else value


def settings(name: str) -> dict[str, Any]:
    """A method's settings and their defaults.

    >>> settings("tpt")["lr"]
    0.005
    """
    return {field.name: field.default for field in fields(find_method(name).settings)}
