"""Evaluations at any address that fsspec reaches (s3://…, gs://…, hdfs://…), worked on in folders of a disk.

Runs append to files, lock them and wait until they are written, which object stores do not offer.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from taps.checkpoint import INDEX, PREVIOUS
from taps.errors import DataError, SettingsError, TapsError
from taps.evaluate.jobs import Job
from taps.evaluate.pool import attempt

EVERY = 30.0  # seconds between two copies of a run that is under way


class Copies:
    """The files at an address, copied to and from folders here.

    Args:
        url: As fsspec takes it.

    Attributes:
        known: When the files here that are the same there were changed last.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url
        self.known: dict[Path, int] = {}
        try:
            self.files, self.root = fsspec.core.url_to_fs(url)
            self.files.makedirs(self.root, exist_ok=True)
        except Exception as error:  # every kind of file system has its own
            raise SettingsError(f"{url} cannot be written to ({error}).") from error

    def fetch(self, out: Path, folder: Path) -> None:
        """Copy what is there below a folder of the evaluation in `out`."""
        try:
            there = self._there(out, folder)
            names = self.files.find(there) if self.files.exists(there) else []
            here = [out / name[len(self.root) :].lstrip("/") for name in names]
            for path in here:
                path.parent.mkdir(parents=True, exist_ok=True)
            self.files.get(names, [str(path) for path in here])
        except Exception as error:
            raise DataError(f"{self.url} cannot be read ({error}).") from error
        self.known |= {path: path.stat().st_mtime_ns for path in here}

    def put(self, out: Path, folder: Path) -> None:
        """Copy what was changed below a folder of the evaluation in `out`, and remove there what is gone.

        What points to other files comes after them, so that a run can go on from a copy that was cut short.
        """
        here = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
        new = {path: stamp for path in here if self.known.get(path) != (stamp := path.stat().st_mtime_ns)}
        gone = {path for path in self.known if folder in path.parents} - set(here)
        try:
            for parent in {path.parent for path in new}:
                self.files.makedirs(self._there(out, parent), exist_ok=True)
            for last in (False, True):
                part = [path for path in new if (path.name in (INDEX, PREVIOUS)) == last]
                self.files.put([str(path) for path in part], [self._there(out, path) for path in part])
            for path in gone:
                self.files.rm(self._there(out, path))
        except Exception as error:
            raise DataError(f"{self.url} cannot be written to ({error}).") from error
        self.known = {path: stamp for path, stamp in self.known.items() if path not in gone} | new

    def _there(self, out: Path, path: Path) -> str:
        return f"{self.root}/{path.relative_to(out).as_posix()}".removesuffix("/.")


@contextmanager
def working_folder(out: str) -> Iterator[tuple[Path, Copies | None]]:
    """The folder of an evaluation; for an address one with a copy of it, which goes back in the end.

    Args:
        out: A path, or an address of fsspec.
    """
    if "://" not in out:
        yield Path(out), None
        return
    copies, folder = Copies(out), Path(mkdtemp(prefix="taps-"))
    try:
        copies.fetch(folder, folder)
        yield folder, copies
    except TapsError as error:
        raise type(error)(str(error).replace(str(folder), out)) from error
    finally:
        try:
            copies.put(folder, folder)
            shutil.rmtree(folder)
        except DataError as error:
            raise DataError(f"{error} What is missing there is in {folder}.") from error


def attempt_there(
    job: Job, url: str, device: str | None, stop: Callable[[], bool], tell: Callable[[int], None]
) -> tuple[str, Any]:
    """`attempt` a run from what is at an address; it is copied there every half a minute and in the end."""
    copies, due = Copies(url), time.monotonic() + EVERY

    def told(position: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            copies.put(out, folder)
            due = time.monotonic() + EVERY
        tell(position)

    with TemporaryDirectory(prefix="taps-") as place:
        out = Path(place)
        folder = job.folder(out)
        try:
            copies.fetch(out, folder)
            said = attempt(job, out, device, stop, told)
            copies.put(out, folder)
        except DataError as error:
            return "failed", str(error)
    return said
