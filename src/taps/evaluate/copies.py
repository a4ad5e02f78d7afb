"""Copies of an evaluation at any place that fsspec reaches: s3://…, gs://…, hdfs://…, another disk."""

from __future__ import annotations

import logging
from pathlib import Path

from taps.errors import SettingsError

log = logging.getLogger("taps")


class Copies:
    """A place that gets the files of an evaluation as they are finished.

    Runs themselves need a disk: they append to files, lock them and wait until they are really written, which
    object stores do not offer.

    Args:
        url: As fsspec takes it.
    """

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise SettingsError("--copy-to needs fsspec: pip install fsspec.") from None
        try:
            self.files, self.root = fsspec.core.url_to_fs(url)
            self.files.makedirs(self.root, exist_ok=True)
        except Exception as error:  # every kind of file system has its own
            raise SettingsError(f"--copy-to {url} cannot be written to ({error}).") from error

    def put(self, out: Path, *paths: Path) -> None:
        """Copy files and folders below the evaluation's folder; what cannot be copied stays where it is."""
        try:
            files = (file for path in paths for file in [path, *path.rglob("*")] if file.is_file())
            for file in (file for file in files if not file.name.startswith(".")):
                there = f"{self.root}/{file.relative_to(out).as_posix()}"
                self.files.makedirs(there.rpartition("/")[0], exist_ok=True)
                self.files.put_file(str(file), there)
        except Exception as error:
            log.warning("%s was not copied to %s (%s); it is in %s.", paths[0].name, self.root, error, out)
