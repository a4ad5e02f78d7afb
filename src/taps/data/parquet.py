"""Parquet files with a column of images and one of labels, as the `datasets` library writes them."""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from taps.data.dataset import Dataset, Sample
from taps.data.manifest import number_labels
from taps.data.names import read_names
from taps.data.shards import class_list
from taps.errors import DataError

IMAGE_COLUMNS = ("image", "img", "jpg", "png", "bytes")
LABEL_COLUMNS = ("label", "labels", "class", "cls")


@dataclass(frozen=True)
class ParquetSource:
    """Images in a column of Parquet files; a key is the name of the file and the number of the row.

    Rows lie there in groups that are read as a whole, so the last group is kept: images in their order are
    cheap, in another order each costs a group.

    Attributes:
        paths: The files, by their names.
        column: Holds the images: bytes, or structs with bytes in them.
        starts: For each file the first row of each group.
    """

    paths: dict[str, Path]
    column: str
    starts: dict[str, list[int]]
    _last: dict[tuple[str, int], Any] = field(default_factory=dict, repr=False, compare=False)
    _lock: Any = field(default_factory=threading.Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParquetSource, (self.paths, self.column, self.starts)

    def read(self, key: str) -> bytes:
        """The bytes of one image."""
        name, _, row = key.rpartition("/")
        group = bisect_right(self.starts[name], int(row)) - 1
        cell = self._group(name, group)[int(row) - self.starts[name][group]].as_py()
        found = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(found, bytes):
            raise DataError(f"{self.paths[name]}, row {row}: {self.column} holds no bytes of an image.")
        return found

    def _group(self, name: str, group: int) -> Any:
        # One group at a time: groups are large, and threads that prefetch mostly want the same one.
        with self._lock:
            if (name, group) not in self._last:
                opened = _open(self.paths[name])
                with _reading(self.paths[name]):
                    column = opened.read_row_group(group, columns=[self.column])[0]
                self._last.clear()
                self._last[name, group] = column
            return self._last[name, group]


def load_parquet(
    files: Sequence[Path], path: Path, name: str, classes: Sequence[str] | str | Path | None = None
) -> Dataset:
    """Load the rows of Parquet files.

    Class names are those given, those of `classnames.txt`, those that `datasets` wrote into the files, or the
    labels themselves where they are texts. No label, or -1, means that nobody knows.
    """
    opened = {file.name: _open(file) for file in files}
    schema = next(iter(opened.values())).schema_arrow
    image = _column(schema.names, IMAGE_COLUMNS, path)
    label = _column(schema.names, LABEL_COLUMNS, path)
    cells = {
        f"{file}/{row}": cell
        for file, parquet in opened.items()
        for row, cell in enumerate(_labels(parquet, label, path))
    }
    given = class_list(classes, path) or _names_inside(schema, label)
    texts = ["" if cell in (None, -1) else str(cell) for cell in cells.values()]
    names, labels = number_labels(texts, given, path)
    samples = map(Sample, cells, labels)
    starts = {file: _starts(parquet.metadata) for file, parquet in opened.items()}
    return Dataset(name, names, tuple(samples), ParquetSource({f.name: f for f in files}, image, starts))


def _labels(parquet: Any, column: str, path: Path) -> list[Any]:
    with _reading(path):
        found: list[Any] = parquet.read([column])[0].to_pylist()
    return found


def _open(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path} needs pyarrow: pip install 'taps-vlm[parquet]'.") from None
    with _reading(path):
        return pyarrow.parquet.ParquetFile(path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """A file that is damaged, wherever that shows, is told in a sentence."""
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ArrowException) as error:
        why = str(error).strip().split("\n")[0]
        raise DataError(f"{path} cannot be read as Parquet ({why}): fetch it again.") from error


def _column(there: Sequence[str], known: Sequence[str], path: Path) -> str:
    found = next((name for name in known if name in there), None)
    if found is None:
        raise DataError(f"{path} has the columns {', '.join(there)}, none of {', '.join(known)}: rename one.")
    return found


def _names_inside(schema: Any, label: str) -> tuple[str, ...] | None:
    """The class names that `datasets` keeps beside the columns."""
    about = json.loads((schema.metadata or {}).get(b"huggingface", "{}"))
    found = about.get("info", {}).get("features", {}).get(label, {}).get("names")
    return read_names(found) if found else None


def _starts(metadata: Any) -> list[int]:
    sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return [0, *accumulate(sizes[:-1])]
