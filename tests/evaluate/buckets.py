"""A file system of fsspec with the manners of an object store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec


class Buckets(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Names begin with a bucket; making a folder makes the bucket; what was listed once is remembered.

    Attributes:
        kept: What is in all buckets, by its name; other machines write into it, too.
        buckets: Those that there are.
        meet: Called with the name of every file before it is written.
    """

    protocol = "bucket"
    kept: ClassVar[dict[str, bytes]] = {}
    buckets: ClassVar[set[str]] = set()
    meet: ClassVar[Callable[[str], None]] = lambda name: None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._listed: list[str] | None = None

    def invalidate_cache(self, path: str | None = None) -> None:
        self._listed = None

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.buckets.add(path.split("/")[0])

    def find(self, path: str, **_: Any) -> list[str]:
        if self._listed is None:
            self._listed = sorted(self.kept)
        return [name for name in self._listed if name.startswith(f"{path}/")]

    def exists(self, path: str, **_: Any) -> bool:
        return bool(self.find(path))

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        Path(lpath).write_bytes(self.kept[rpath])

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        self.pipe_file(rpath, Path(lpath).read_bytes())

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        if path.split("/")[0] not in self.buckets:
            raise FileNotFoundError("The specified bucket does not exist")
        type(self).meet(path)
        self.kept[path] = value
        self._listed = None

    def rm_file(self, path: str) -> None:
        if path not in self.kept:
            raise FileNotFoundError(path)
        del self.kept[path]
        self._listed = None
