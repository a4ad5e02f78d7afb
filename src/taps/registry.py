"""Things by their names, one class for all kinds: methods, asking rules, policies, prompt families, ….

Each enters itself where it is defined. Plugins are modules that enter further ones. They are named with
`--plugin` or in the environment variable TAPS_PLUGINS (separated by commas), or are installed packages with
an entry point in the group `taps.methods`.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import logging
import os
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TypeVar

from taps.errors import SettingsError

log = logging.getLogger("taps")
PLUGINS = "TAPS_PLUGINS"
T = TypeVar("T")
D = TypeVar("D")
_loaded: set[str] = set()  # named plugins


class Registry(Mapping[str, T]):
    """Things of one kind by their names, by the alphabet.

    Whoever looks for a name that is not there, or lists the names, has the product's own modules and the
    plugins imported first. So a registry may stand as the `choices` of a setting before there are any.

    Args:
        kind: What errors call one of them.
        homes: The product's own modules, or packages of modules, that enter some.

    Example:
        >>> colours = Registry[int]("colour", "taps.types")
        >>> colours.enter("amber", 3, module="a plugin's")
        3
        >>> colours["amber"], "blue" in colours
        (3, False)
        >>> colours["ambre"]
        Traceback (most recent call last):
        taps.errors.SettingsError: Unknown colour 'ambre'; use one of amber. Did you mean 'amber'?
    """

    def __init__(self, kind: str, *homes: str) -> None:
        self.kind, self.homes = kind, homes
        self._things: dict[str, T] = {}
        self._whole = False  # whether all own modules are imported

    def enter(self, name: str, thing: T, module: str) -> T:
        """Give a thing its name; one that is taken is refused.

        Args:
            module: Where it is defined. For one from outside our own come first, so that a name taken twice
                is the plugin's error.
        """
        if module.partition(".")[0] != "taps":
            self._load_own()
        if name in self._things:
            raise SettingsError(f"{_a(self.kind)} named {name!r} exists already; choose another name.")
        self._things[name] = thing
        return thing

    def entering(self, name: str) -> Callable[[D], D]:
        """A decorator that gives a class or a function its name, where it is itself the thing."""
        return lambda thing: self.enter(name, thing, thing.__module__)  # type: ignore[arg-type, return-value]

    def _load_own(self) -> None:
        if not self._whole:
            for name in self.homes:
                home = importlib.import_module(name)
                for found in pkgutil.iter_modules(getattr(home, "__path__", ())):
                    importlib.import_module(f"{name}.{found.name}")
            self._whole = True

    def _all(self) -> dict[str, T]:
        self._load_own()
        load_plugins()
        return self._things

    def __getitem__(self, name: str) -> T:
        if name not in self:
            every = ", ".join(self)
            raise SettingsError(f"Unknown {self.kind} {name!r}; use one of {every}.{nearest(name, self)}")
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._all()))

    def __len__(self) -> int:
        return len(self._all())


def nearest(name: str, names: Iterable[str]) -> str:
    """The question whether the name most like a wrong one was meant; empty where none is like it.

    >>> nearest("margn", ["entropy", "margin"]), nearest("x", ["entropy"])
    (" Did you mean 'margin'?", '')
    """
    found = difflib.get_close_matches(name, list(names), 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def _a(kind: str) -> str:
    return f"{'An' if kind[0] in 'aeiou' else 'A'} {kind}"


def load_plugins(names: Iterable[str] = ()) -> None:
    """Import plugins: those named, those in TAPS_PLUGINS, and installed ones. Each is imported once.

    Those named are added to TAPS_PLUGINS, so that processes started from here know them too.

    Args:
        names: Of modules, also in the working directory; or paths of files that end in .py.
    """
    _load_installed()
    full = [str(Path(name).resolve()) if name.endswith(".py") else name for name in names]
    wanted = dict.fromkeys([*named_plugins(), *full])
    for name in wanted:
        if name not in _loaded:
            _loaded.add(name)  # before: a plugin may look at the registries itself
            _load_named(name)
    if wanted:
        os.environ[PLUGINS] = ",".join(wanted)


def named_plugins() -> list[str]:
    """Plugins that were named so far, by this process or the one that started it."""
    return [name for name in os.environ.get(PLUGINS, "").split(",") if name]


@functools.cache
def _load_installed() -> None:
    for entry in entry_points(group="taps.methods"):
        try:
            entry.load()
        except Exception as error:  # whoever installed it may not need it now
            log.warning("The plugin %s (%s) cannot be loaded: %s.", entry.name, entry.value, error)


def _load_named(name: str) -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # where people have their module; installed ones come first
    try:
        if name.endswith(".py"):
            _load_file(Path(name))
        else:
            importlib.import_module(name)
    except Exception as error:
        _loaded.discard(name)
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(f"The plugin {name!r} cannot be loaded ({error!r}).") from error


def _load_file(path: Path) -> None:
    spec = spec_from_file_location(f"taps_plugin_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
