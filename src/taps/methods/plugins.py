"""Methods of one's own: modules that register some, known to every command and every process it starts.

Named with `--plugin` or in the environment variable TAPS_PLUGINS (separated by commas), or found as installed
packages with an entry point in the group `taps.methods`.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from taps.errors import SettingsError

log = logging.getLogger("taps")
GROUP, VARIABLE = "taps.methods", "TAPS_PLUGINS"
_loaded: set[str] = set()


def import_plugins(names: Iterable[str] = ()) -> None:
    """Import plugins: those named, those in TAPS_PLUGINS, and installed ones. Each is imported once.

    Those named are added to TAPS_PLUGINS, so that processes started from here know them too.

    Args:
        names: Of modules, also in the working directory; or paths of files that end in .py.
    """
    wanted = dict.fromkeys([*named_plugins(), *(_lasting(name) for name in names)])
    for entry in entry_points(group=GROUP):
        if entry.value not in _loaded:
            _loaded.add(entry.value)
            _load_installed(entry)
    for name in wanted:
        if name not in _loaded:
            _load_named(name)
            _loaded.add(name)
    if wanted:
        os.environ[VARIABLE] = ",".join(wanted)


def named_plugins() -> list[str]:
    """Those that were named so far, by whichever process."""
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


def _lasting(name: str) -> str:
    """A path in full, so that a process in another directory finds it."""
    return str(Path(name).resolve()) if name.endswith(".py") else name


def _load_installed(entry: EntryPoint) -> None:
    """One that fails is told of and left: whoever installed it may not need it now."""
    try:
        entry.load()
    except Exception as error:
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
    except SettingsError:
        raise
    except Exception as error:
        raise SettingsError(f"The plugin {name!r} cannot be loaded ({error!r}).") from error


def _load_file(path: Path) -> None:
    spec = spec_from_file_location(f"taps_plugin_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
