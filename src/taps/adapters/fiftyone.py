"""Files that FiftyOne imports and exports as `FiftyOneImageClassificationDataset`; it is not imported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.errors import DataError
from taps.files import json_text, write_text
from taps.session.row import Row

FIELDS = ("predictions", "questions", "answers")
"""Each is one file of labels, to be merged into a field of the same name."""


def write_fiftyone(folder: str | Path, rows: Sequence[Row]) -> None:
    """Write `data.json`, which names the images, and a file of labels for each of `FIELDS`.

    Questions are labelled "asked" or "not asked"; answers are those the annotator gave.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ids = [f"{number:07d}" for number in range(len(rows))]
    paths = {id + Path(each.name).suffix: each.name for id, each in zip(ids, rows, strict=True)}
    write_text(folder / "data.json", json_text(paths))
    labels: dict[str, dict[str, Any]] = {field: {} for field in FIELDS}
    for id, each in zip(ids, rows, strict=True):
        labels["predictions"][id] = {"label": each.label, "confidence": each.probability}
        labels["questions"][id] = {"label": "asked" if each.asked else "not asked"}
        if each.answer:
            labels["answers"][id] = {"label": each.answer}
    for field, found in labels.items():
        write_text(folder / f"{field}.json", json_text({"classes": None, "labels": found}))


def read_fiftyone(labels: str | Path, data: str | Path | None = None) -> dict[str, str]:
    """Class of each image by its path, from a file of labels.

    Args:
        labels: `labels.json` of an export, or one of those written here.
        data: The `data.json` that names the images; that beside the labels unless given. Without one, images
            are in the folder `data` beside the labels and called by their names without the ending.
    """
    labels = Path(labels)
    found = _read(labels)
    manifest = Path(data) if data is not None else labels.parent / "data.json"
    if manifest.is_file():
        named_by = _read(manifest)  # with the ending of the file, or as FiftyOne writes it, without
        paths = {str(Path(name).with_suffix("")): path for name, path in named_by.items()} | named_by
    else:
        base = labels.parent / "data"
        files = [path for path in sorted(base.rglob("*")) if path.is_file()]
        paths = {str(path.relative_to(base).with_suffix("")): str(path) for path in files}
    named = {id: _name(value, found.get("classes")) for id, value in found.get("labels", {}).items()}
    lost = [id for id, name in named.items() if name and id not in paths]
    if lost:
        raise DataError(f"{labels} labels {lost[0]!r}, which no image is called; give the data.json of it.")
    return {str(paths[id]): name for id, name in named.items() if name}


def _name(value: Any, classes: Sequence[str] | None) -> str:
    value = value.get("label") if isinstance(value, dict) else value
    if isinstance(value, int) and classes:
        return str(classes[value])
    return "" if value is None else str(value)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}).") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no labels of a FiftyOneImageClassificationDataset.")
    return found
