"""Where a command was typed, and whether a machine of the cluster can work for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from taps import __version__
from taps.errors import SettingsError


@dataclass(frozen=True)
class Origin:
    """Travels to every machine that works for a command.

    Attributes:
        here: The folder it was typed in: data sets and models may be given by relative paths.
        mark: A file in the folder that all machines write to; None where they share none.
        version: Of taps.
    """

    here: Path
    mark: Path | None = None
    version: str = __version__

    def enter(self) -> None:
        """Work in the same folder, where this machine has it."""
        if self.here.is_dir():
            os.chdir(self.here)

    def check(self) -> None:
        """Refuse a machine with another version, or one that does not see what the others write."""
        if self.version != __version__:
            raise SettingsError(
                f"it has taps {__version__}, but the command was given with {self.version}; install the same."
            )
        if self.mark and not self.mark.exists():
            raise SettingsError(
                f"it does not see {self.mark.parent} as the command does; use a folder that all share."
            )


@contextmanager
def origin(folder: Path | None = None) -> Iterator[Origin]:
    """This folder and this version, for as long as work goes on.

    Args:
        folder: The one that all machines write to.
    """
    if folder is None:
        yield Origin(Path.cwd())
        return
    with NamedTemporaryFile(dir=folder.resolve(), prefix=".ray-") as mark:
        yield Origin(Path.cwd(), Path(mark.name))


def this_machine() -> str:
    """Its address, as Ray calls it."""
    from ray.util import get_node_ip_address

    return str(get_node_ip_address())  # type: ignore[no-untyped-call]
