"""Every method by its name. A method registers itself where it is defined: `@method("tda", TdaSettings)`."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from taps.clip import Clip
from taps.errors import SettingsError
from taps.methods.base import Method
from taps.methods.plugins import import_plugins
from taps.methods.settings import Asking, Settings

Build = Callable[[Clip, tuple[str, ...], Any, int], Method]
B = TypeVar("B", bound=Build)


@dataclass(frozen=True)
class Registered:
    """What is known of a method.

    Attributes:
        name: What users type.
        build: Makes it: `build(clip, classes, settings, seed)`.
        settings: Its settings.
        line: What `taps methods` says of it.
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
    def known(self) -> set[str]:
        """Names of its settings."""
        return {field.name for field in fields(self.settings)}


_METHODS: dict[str, Registered] = {}


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
    seed. `line` is the first line of its docstring unless given; for the others see `Registered`.
    """

    def register(build: B) -> B:
        if name in _METHODS:
            raise SettingsError(f"There is a method named {name!r} already; choose another name.")
        said = line or (build.__doc__ or "").strip().partition("\n")[0]
        _METHODS[name] = Registered(name, build, settings, said, prompts, baseline, by_dataset)
        return build

    return register


@functools.cache
def _load_own() -> None:
    """Import every module of this package; those that are methods register themselves."""
    import taps.methods as package

    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")


def load_plugins(names: Iterable[str] = ()) -> None:
    """Import modules with methods of one's own: those named, in TAPS_PLUGINS, and of installed packages."""
    _load_own()  # first, so that a name which is taken is told to whoever takes it again
    import_plugins(names)


def all_methods() -> dict[str, Registered]:
    """Every method by name: the baselines, then the others by the alphabet; plugins' too."""
    load_plugins()
    return dict(sorted(_METHODS.items(), key=lambda item: (item[1].baseline or 99, item[0])))


def list_methods() -> list[str]:
    """Names of all methods.

    >>> "taps" in list_methods()
    True
    """
    return list(all_methods())


def find_method(name: str) -> Registered:
    if name not in _METHODS:
        known = all_methods()
        if name not in known:
            raise SettingsError(f"There is no method named {name!r}; use one of {', '.join(known)}.")
    return _METHODS[name]


def method_settings(name: str, values: Mapping[str, Any]) -> Settings:
    """The settings of a method from keyword arguments; unknown names and bad values are refused."""
    found = find_method(name)
    unknown = sorted(values.keys() - found.known)
    if unknown:
        raise SettingsError(
            f"The method {name!r} has no setting {', '.join(unknown)}; its settings are "
            f"{', '.join(sorted(found.known))}."
        )
    return found.settings(**values)


def settings(name: str) -> dict[str, Any]:
    """A method's settings and their defaults.

    >>> settings("tpt")["lr"]
    0.005
    """
    return {field.name: field.default for field in fields(find_method(name).settings)}
