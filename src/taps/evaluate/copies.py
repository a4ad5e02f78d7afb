"""Evaluations at any fsspec address (s3://…, gs://…, hdfs://…), worked on in folders of a local disk.

Runs append to files, lock them and wait until they are written, which object stores do not offer.
"""

from __future__ import annotations

import logging
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from threading import Timer
from typing import Any

from taps.checkpoint import INDEX, PREVIOUS
from taps.disk import MARKER
from taps.errors import DataError, SettingsError, TapsError
from taps.evaluate.jobs import Job
from taps.evaluate.pool import attempt
from taps.files import PART

log = logging.getLogger("taps")
PATIENCE = 5.0  # seconds without an answer after which a warning is logged
EVERY = 30.0  # seconds between two copies of a run that is under way


class Copies:
    """The files at an fsspec address, copied to and from folders here.

    Attributes:
        known: Modification time of each file here whose copy at the address is up to date.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url
        self.known: dict[Path, int] = {}
        self._due: dict[Path, float] = {}
        try:
            self.files, self.root = fsspec.core.url_to_fs(url)
        except Exception as error:  # every kind of file system has its own
            raise SettingsError(f"{url} cannot be written to ({error}).") from error

    def check(self) -> None:
        """Refuse an address at which nothing can be written, before any work is done for it."""
        probe = f"{self.root}/.writable"
        with self._refusing("written to"):
            self._make_folder(self.root)
            self.files.pipe_file(probe, b"")
            self.files.rm_file(probe)

    def fetch(self, out: Path, folder: Path) -> None:
        """Copy the files at the address to a folder of the evaluation in `out`."""
        with self._refusing("read"):
            self.files.invalidate_cache()  # other machines write there, too
            remote = self._remote(out, folder)
            names = self.files.find(remote) if self._exists(remote) else []
            here = [out / name[len(self.root) :].lstrip("/") for name in names]
            for path in here:
                path.parent.mkdir(parents=True, exist_ok=True)
            self.files.get(names, [str(path) for path in here])
        self.known |= {path: path.stat().st_mtime_ns for path in here}

    def put(self, out: Path, folder: Path) -> None:
        """Copy what was changed below a folder of the evaluation in `out`, and remove there what is gone.

        Files that point to others are copied after them, so that a run can continue from a copy that was cut
        short. They wait for the next copy where the run has saved its state meanwhile.
        """
        pointers = _pointers(folder)
        try:
            with self._refusing("written to"):
                self._put(out, folder, pointers)
        except DataError:
            if _pointers(folder) == pointers:
                raise

    def _put(self, out: Path, folder: Path, pointers: dict[Path, bytes]) -> None:
        found = [*folder.rglob("[!.]*"), *folder.rglob(MARKER)]
        whole = [path for path in found if path.is_file() and path.suffix != PART]
        here = {path: path.stat().st_mtime_ns for path in whole}
        gone = {path for path in self.known if folder in path.parents} - set(here)
        new = {path: stamp for path, stamp in here.items() if self.known.get(path) != stamp}
        for parent in {path.parent for path in new}:
            self._make_folder(self._remote(out, parent))
        files = [path for path in new if path not in pointers]
        self.files.put([str(path) for path in files], [self._remote(out, path) for path in files])
        if _pointers(folder) == pointers:
            for path in new.keys() & pointers.keys():
                self.files.pipe_file(self._remote(out, path), pointers[path])
            for path in gone:
                with suppress(FileNotFoundError):  # the last copy was cut short
                    self.files.rm_file(self._remote(out, path))
            self.known = {path: stamp for path, stamp in self.known.items() if path not in gone} | new

    def keep_up(self, out: Path, folder: Path, *, now: bool) -> None:
        """`put` a folder now, or where `EVERY` seconds have passed; what fails is logged and tried again."""
        if not now and time.monotonic() < self._due.setdefault(folder, time.monotonic() + EVERY):
            return
        try:
            self.put(out, folder)
        except (DataError, OSError) as error:
            log.warning("%s", error)
        self._due[folder] = time.monotonic() + EVERY

    def _exists(self, remote: str) -> bool:
        # Libraries retry for minutes without a word where nobody answers.
        warning = f"{self.url} has not answered for {PATIENCE:g} seconds; trying on (Ctrl-C ends it)."
        late = Timer(PATIENCE, log.warning, [warning])
        late.daemon = True
        late.start()
        try:
            return bool(self.files.exists(remote))
        finally:
            late.cancel()

    def _make_folder(self, remote: str) -> None:
        # Object stores have no folders: their names begin with a bucket, which is not ours to make.
        if remote.startswith("/"):
            self.files.makedirs(remote, exist_ok=True)

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise DataError(f"{self.url} cannot be {what} ({error}).") from error

    def named(self, out: Path, text: str) -> str:
        """A sentence about files in `out`, with their address."""
        return text.replace(str(out), self.url)

    def _remote(self, out: Path, path: Path) -> str:
        return f"{self.root}/{path.relative_to(out).as_posix()}".removesuffix("/.")


def _pointers(folder: Path) -> dict[Path, bytes]:
    """The content of the files that say which files of a run's state belong together."""
    return {path: path.read_bytes() for name in (INDEX, PREVIOUS) for path in folder.rglob(name)}


@contextmanager
def working_folder(
    out: str, part: Callable[[Path], Path] = lambda out: out
) -> Iterator[tuple[Path, Copies | None]]:
    """The folder of an evaluation; of an address a copy (of `part` alone), which goes back in the end."""
    if "://" not in out:
        yield Path(out), None
        return
    copies, folder = Copies(out), Path(mkdtemp(prefix="taps-"))
    try:
        copies.fetch(folder, part(folder))
    except BaseException:
        shutil.rmtree(folder)  # what came of it must not go back
        raise
    try:
        yield folder, copies
    except TapsError as error:
        raise type(error)(copies.named(folder, str(error))) from error
    finally:
        try:
            copies.put(folder, part(folder))
            shutil.rmtree(folder)
        except DataError as error:
            rest = f"What is missing there is in {platform.node()}:{folder}; copy it to the address."
            raise DataError(f"{error} {rest}") from error


def attempt_there(
    job: Job, url: str, device: str | None, stop: Callable[[], bool], tell: Callable[[int], None]
) -> tuple[str, Any]:
    """`attempt` a run from what is at an address; it is copied there every `EVERY` seconds and in the end."""
    try:
        with working_folder(url, job.folder) as (out, copies):
            assert copies is not None

            def on_progress(position: int) -> None:
                copies.keep_up(out, job.folder(out), now=False)
                tell(position)

            what, value = attempt(job, out, device, stop, on_progress)
    except DataError as error:
        return "failed", str(error)
    return what, copies.named(out, value) if what == "failed" else value
