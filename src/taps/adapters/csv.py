"""Labels as a CSV with the columns path and label: a manifest that every command takes as well."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from taps.adapters.judged import Judged
from taps.data.manifest import read_rows
from taps.errors import DataError


def write_csv(file: str | Path, judged: Iterable[Judged]) -> None:
    """One row an image: path, label (the expert's answer), predicted, probability, asked."""
    with Path(file).open("w", encoding="utf-8", errors="surrogateescape", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["path", "label", "predicted", "probability", "asked"])
        for each in judged:
            writer.writerow([each.path, each.answer, each.predicted, each.probability, int(each.asked)])


def read_csv(file: str | Path) -> Mapping[str, str]:
    """Label of each image by its path; rows without a label are left out."""
    rows = read_rows(Path(file))
    if rows and not {"path", "label"} <= rows[0].keys():
        raise DataError(f"{file} has no columns path and label, only {', '.join(rows[0])}.")
    return {row["path"]: row["label"] for row in rows if row["label"]}
