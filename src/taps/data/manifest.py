"""CSV and JSONL manifests: one row an image, with its path and its label."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.data import names
from taps.data.dataset import Dataset, Sample
from taps.data.sources import FolderSource
from taps.errors import DataError
from taps.files import unquoted

MANIFEST_SUFFIXES = (".csv", ".jsonl", ".ndjson")


def load_manifest(path: Path, name: str, classes: Sequence[str] | str | Path | None = None) -> Dataset:
    """Load a manifest with the column `path` and optionally `label` and `domain`.

    Paths are relative to the manifest. A label is a class name, or with a class list also its index; it is
    empty where the class is unknown.
    """
    rows = read_rows(path)
    if not rows:
        raise DataError(f"{path} has no rows: write one line for each image, with path and label.")
    given = None if classes is None else names.read_names(classes)
    texts = [_text(row.get("label")) for row in rows]
    class_list, labels = names.number_labels(texts, given, path)
    samples = tuple(
        Sample(_text(row.get("path")).replace("\\", "/"), label, _text(row.get("domain")))
        for row, label in zip(rows, labels, strict=True)
    )
    refuse_bad_paths(samples, path)
    return Dataset(name, class_list, samples, FolderSource(path.parent))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV or JSONL file as dicts; a `DataError` with the line where one is damaged."""
    text = names.read_text(path, "The manifest ")
    if path.suffix.lower() == ".csv":
        separator = max(",;\t", key=text.partition("\n")[0].count)  # a comma, if there is no other
        reader = csv.DictReader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
        try:
            columns, rows = list(reader.fieldnames or []), list(reader)
        except csv.Error as error:
            raise DataError(f"{path} is not CSV: {error}.") from error
        if "path" not in columns:
            raise DataError(
                f"{path} has the columns {', '.join(columns) or '(none)'}: its first line must name "
                "path and, where labels are known, label."
            )
        plain = ({name: cell for name, cell in row.items() if isinstance(cell, str)} for row in rows)
        return [{name: unquoted(cell) for name, cell in row.items()} for row in plain]
    lines = enumerate(text.split("\n"), start=1)
    return [_json_row(line, f"{path}, line {number}") for number, line in lines if line.strip()]


def _json_row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where} is not JSON: {error}.") from error
    if not isinstance(row, dict) or "path" not in row:
        raise DataError(f'{where} must be an object like {{"path": "a.jpg", "label": "cat"}}.')
    return row


def refuse_bad_paths(samples: Sequence[Sample], manifest: Path) -> None:
    """Refuse rows without a path, files that are not there, and one file with two labels."""
    empty = sum(not sample.path for sample in samples)
    if empty:
        raise DataError(f"{manifest} has {empty:,} rows without a path: fill them in or remove them.")
    label_of: dict[str, int | None] = {}
    for sample in samples:
        if label_of.setdefault(sample.path, sample.label) != sample.label:
            raise DataError(f"{manifest} gives {sample.path} two different labels: keep one.")
    missing = [key for key in label_of if not (manifest.parent / key).is_file()]
    if missing:
        raise DataError(
            f"{manifest} names {len(missing):,} files that are not there: {names.shown(missing)}; "
            f"paths are relative to {manifest.parent.absolute()}."
        )


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()
