"""What a stream has come to, as files others can read: CSV, JSONL, and an ImageFolder zip."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from taps.errors import StateError
from taps.serve.errors import GoneError
from taps.serve.records import LABELLED, UNASKED, Row, Stream
from taps.serve.store import Store

COLUMNS = (
    "id", "at", "name", "image", "predicted", "probability", "entropy", "score", "threshold", "asked",
    "question", "state", "answer", "no", "none", "ended_by", "ended_at",
)  # fmt: skip
PAGE = 1000


def rows(store: Store, stream: Stream, *, labels: bool) -> Iterator[Row]:
    """The predictions on record, or those with a label alone."""
    after = -1
    while page := store.predictions(stream.id, states=LABELLED if labels else (), after=after, limit=PAGE):
        yield from page
        after = page[-1].id


def as_csv(store: Store, stream: Stream, *, labels: bool) -> Iterator[str]:
    """Lines of a CSV file with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow(COLUMNS)
    for row in rows(store, stream, labels=labels):
        writer.writerow([_harmless(value) for value in _values(row).values()])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def as_jsonl(store: Store, stream: Stream, *, labels: bool) -> Iterator[str]:
    """One JSON object a line, with the likeliest classes."""
    for row in rows(store, stream, labels=labels):
        yield json.dumps({**_values(row), "top": row.top}, ensure_ascii=False) + "\n"


def as_zip(store: Store, stream: Stream, path: Path) -> None:
    """The labelled images, one folder a class: what ImageFolder reads. Images that are gone are listed."""
    missing = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for row in rows(store, stream, labels=True):
            if row.answer is None:  # what it is not gives it no folder
                continue
            try:
                data = store.blobs.read(row.image)
            except (GoneError, StateError) as error:
                missing.append(str(error))
                continue
            archive.writestr(f"{folder_name(row.answer)}/{row.id:08d}{_suffix(data)}", data)
        if missing:
            archive.writestr("MISSING.txt", "\n".join(missing) + "\n")


def folder_name(label: str) -> str:
    """A class's folder: its name without what could lead out of the archive or offend a file system.

    >>> folder_name("golden retriever"), folder_name("../../etc"), folder_name("con/aux")
    ('golden retriever', '_.._etc', 'con_aux')
    """
    plain = re.sub(r'[\x00-\x1f<>:"/\\|?*]', "_", label).strip(" ")
    plain = re.sub(r"^\.+", "", plain).rstrip(".")
    return plain[:120] or "_"


def _values(row: Row) -> dict[str, object]:
    known = vars(row) | {
        "predicted": row.label,
        "probability": row.top[0][1] if row.top else None,
        "asked": row.state not in UNASKED,
    }
    return {name: known[name] for name in COLUMNS}


def _harmless(value: object) -> object:
    """Text a spreadsheet would take for a formula is quoted for it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        value = "; ".join(value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def _suffix(data: bytes) -> str:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return {"JPEG": ".jpg", "MPO": ".jpg"}.get(image.format or "", f".{(image.format or 'img').lower()}")
