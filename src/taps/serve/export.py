"""Exports of a stream: CSV, JSONL, and a zip of labelled images for ImageFolder."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from taps.errors import StateError
from taps.files import csv_line, json_text
from taps.serve.errors import GoneError
from taps.serve.records import Stream
from taps.serve.store import Store
from taps.streams.class_folders import ClassFolders
from taps.streams.row import ANSWER, LABELLED, Row

COLUMNS = (
    "id", "at", "name", "image", "predicted", "probability", "entropy", "score", "threshold", "asked",
    "question", "state", *ANSWER, "ended_by", "ended_at", "why",
)  # fmt: skip
PAGE = 1000
MISSING, FOLDERS = "MISSING.txt", "FOLDERS.csv"


def rows(store: Store, stream: Stream, *, labels: bool) -> Iterator[Row]:
    """The predictions on record, or those with a label alone."""
    after = -1
    while page := store.predictions(stream.id, states=LABELLED if labels else (), after=after, limit=PAGE):
        yield from page
        after = page[-1].id


def as_csv(rows: Iterable[Row]) -> Iterator[str]:
    """Lines of a CSV file with a header."""
    yield csv_line(COLUMNS)
    for row in rows:
        yield csv_line([_cell(value) for value in _values(row).values()])


def as_jsonl(rows: Iterable[Row]) -> Iterator[str]:
    """One JSON object a line, with the likeliest classes."""
    for row in rows:
        yield json_text({**_values(row), "top": row.top}, ensure_ascii=False) + "\n"


def as_zip(store: Store, stream: Stream, path: Path) -> None:
    """The labelled images, one folder a class: what ImageFolder reads."""
    labelled = rows(store, stream, labels=True)  # what an image is not gives it no folder
    kept = ((row, row.answer) for row in labelled if row.answer is not None)
    zip_images(store, kept, path, lambda row, data: f"{row.id:08d}{_suffix(data)}")


def zip_images(
    store: Store, images: Iterable[tuple[Row, str]], path: Path, name: Callable[[Row, bytes], str]
) -> None:
    """Write images, given by row and class, to an archive with one folder a class.

    `name` gives the name of an image's file. MISSING.txt lists images that are no longer kept, FOLDERS.csv
    the classes whose folders have other names.
    """
    missing, folders = [], ClassFolders([MISSING, FOLDERS])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for row, label in images:
            try:
                data = store.blobs.read(row.image)
            except (GoneError, StateError) as error:
                missing.append(f"{row.name}: {error}")
                continue
            archive.writestr(f"{folders[label]}/{name(row, data)}", data)
        if missing:
            archive.writestr(MISSING, "\n".join(missing) + "\n")
        if others := [(folder, label) for label, folder in folders.names.items() if folder != label]:
            archive.writestr(FOLDERS, "".join(map(csv_line, [("folder", "class"), *others])))


def _values(row: Row) -> dict[str, object]:
    told: dict[str, object] = {
        "predicted": row.label,
        "why": "random" if row.drawn else "score" if row.asked else "",
    }
    told |= {"score": None} if row.drawn else {}  # its own score is not on record
    return {name: told[name] if name in told else getattr(row, name) for name in COLUMNS}


def _cell(value: object) -> object:
    """A value for a table."""
    if isinstance(value, list):
        return "; ".join(value)
    return int(value) if isinstance(value, bool) else value


def _suffix(data: bytes) -> str:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return {"JPEG": ".jpg", "MPO": ".jpg"}.get(image.format or "", f".{(image.format or 'img').lower()}")
