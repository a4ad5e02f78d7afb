"""Labels as a CSV with the columns path and label: a manifest that every command takes as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from taps.data.manifest import read_rows
from taps.errors import DataError
from taps.files import csv_line, write_text
from taps.session.row import Row


def write_csv(file: str | Path, rows: Iterable[Row]) -> None:
    """One row an image: path, label (the annotator's answer), predicted, probability, asked."""
    lines = [("path", "label", "predicted", "probability", "asked")] + [
        (each.name, each.answer or "", each.label, each.probability, int(each.asked)) for each in rows
    ]
    write_text(Path(file), "".join(map(csv_line, lines)))


def read_csv(file: str | Path) -> Mapping[str, str]:
    """Label of each image by its path; rows without a label are left out."""
    rows = read_rows(Path(file))
    if rows and not {"path", "label"} <= rows[0].keys():
        raise DataError(f"{file} has no columns path and label, only {', '.join(rows[0])}.")
    return {row["path"]: row["label"] for row in rows if row["label"]}
