"""Labelled shards: tars as webdataset writes them, and Parquet files as the `datasets` library does."""

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
from taps.data.names import number_labels, read_names
from taps.data.sources import Listing, TarSource
from taps.errors import DataError

CLASSNAMES = "classnames.txt"
IMAGE_COLUMNS = ("image", "img", "jpg", "png", "bytes")
LABEL_COLUMNS = ("label", "labels", "class", "cls")


def is_webdataset(source: TarSource, listing: Listing) -> bool:
    """Whether images have labels beside them; the first image decides."""
    return bool(listing.images) and _label_file(source, "/".join(listing.images[0])) is not None


def load_webdataset(
    source: TarSource, listing: Listing, path: Path, name: str, classes: Sequence[str] | str | Path | None
) -> Dataset:
    """Images with a label beside each: `0001.jpg`, and `0001.cls` with a text or `0001.json` with "label".

    A label is a class name, or with a class list its index. An image without a label file has no label.
    """
    keys = ["/".join(parts) for parts in listing.images]
    names, labels = number_labels([_label_text(source, key) for key in keys], class_list(classes, path), path)
    kinds = listing.kinds.copy()
    for ending in (".cls", ".json"):
        del kinds[ending]  # these were read
    return Dataset(name, names, tuple(map(Sample, keys, labels)), source, skipped_kinds=kinds)


def class_list(classes: Sequence[str] | str | Path | None, path: Path) -> tuple[str, ...] | None:
    """The class names given, or those of `classnames.txt` beside the shards or one folder above."""
    if classes is not None:
        return read_names(classes)
    folder = path if path.is_dir() else path.parent
    beside = [place / CLASSNAMES for place in (folder, folder.parent) if (place / CLASSNAMES).is_file()]
    return read_names(beside[0]) if beside else None


def _label_file(source: TarSource, key: str) -> str | None:
    """The file with the label of an image: its name is the same up to the first dot."""
    folder, slash, name = key.rpartition("/")
    stem = folder + slash + name.partition(".")[0]
    files = (stem + ending for ending in (".cls", ".json"))
    return next((file for file in files if source.prefix + file in source.members), None)


def _label_text(source: TarSource, key: str) -> str:
    file = _label_file(source, key)
    if file is None:
        return ""
    try:
        text = source.read(file).decode().strip()
        label = json.loads(text).get("label") if file.endswith(".json") else text
    except (ValueError, AttributeError) as error:
        raise DataError(f"{file} in {source.paths[0]} holds no label ({error}).") from error
    return "" if label is None else str(label)


@dataclass(frozen=True)
class ParquetSource:
    """Images in a column of Parquet files; a key is the name of the file and the number of the row.

    Rows are stored in groups that are read as a whole, so the last group is kept: images in their order are
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
        name, _, row = key.rpartition("/")
        group = bisect_right(self.starts[name], int(row)) - 1
        cell = self._group(name, group)[int(row) - self.starts[name][group]].as_py()
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(content, bytes):
            raise DataError(f"{self.paths[name]}, row {row}: {self.column} holds no bytes of an image.")
        return content

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
    labels themselves where they are texts. An empty label, or -1, means unknown.
    """
    opened = {file.name: _open(file) for file in files}
    schema = next(iter(opened.values())).schema_arrow
    image = _column(schema.names, IMAGE_COLUMNS, path)
    label = _column(schema.names, LABEL_COLUMNS, path)
    keys, texts, starts = [], [], {}
    for file, parquet in opened.items():
        with _reading(path):
            cells = parquet.read([label])[0].to_pylist()
        keys += [f"{file}/{row}" for row in range(len(cells))]
        texts += ["" if cell in (None, -1) else str(cell) for cell in cells]
        groups = range(parquet.metadata.num_row_groups)
        sizes = [parquet.metadata.row_group(group).num_rows for group in groups]
        starts[file] = [0, *accumulate(sizes[:-1])]
    names, labels = number_labels(texts, class_list(classes, path) or _names_inside(schema, label), path)
    source = ParquetSource({file.name: file for file in files}, image, starts)
    return Dataset(name, names, tuple(map(Sample, keys, labels)), source)


def _open(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path} needs pyarrow: pip install 'taps-vlm[parquet]'.") from None
    with _reading(path):
        return pyarrow.parquet.ParquetFile(path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn pyarrow's errors about a damaged file into a `DataError`."""
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ArrowException) as error:
        why = str(error).strip().split("\n")[0]
        raise DataError(f"{path} cannot be read as Parquet ({why}): fetch it again.") from error


def _column(columns: Sequence[str], known: Sequence[str], path: Path) -> str:
    found = next((name for name in known if name in columns), None)
    if found is None:
        raise DataError(f"{path} has columns {', '.join(columns)}, none of {', '.join(known)}: rename one.")
    return found


def _names_inside(schema: Any, label: str) -> tuple[str, ...] | None:
    """The class names that `datasets` keeps beside the columns."""
    about = json.loads((schema.metadata or {}).get(b"huggingface", "{}"))
    names = about.get("info", {}).get("features", {}).get(label, {}).get("names")
    return read_names(names) if names else None
