"""The archive of images has a folder for each class, and tells which is whose."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from taps.serve.errors import GoneError
from taps.serve.export import zip_images


def read(image: str) -> bytes:
    if image == "gone":
        raise GoneError("it was deleted")
    return image.encode()


def test_no_two_classes_share_a_folder(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(blobs=SimpleNamespace(read=read))
    labels = ["a/b", "a_b", "Cat", "cat", "con", "MISSING.txt", "cat", "FOLDERS.csv"]
    rows: list[Any] = [SimpleNamespace(id=id, name=f"{id}", image=f"{id}") for id in range(len(labels))]
    gone: Any = SimpleNamespace(id=9, name="9", image="gone")
    images = [*zip(rows, labels, strict=True), (gone, "cat")]
    zip_images(store, images, tmp_path / "a.zip", lambda row, data: f"{row.id}.png")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        lines = archive.read("FOLDERS.csv").decode().splitlines()
        classes = {row["folder"]: row["class"] for row in csv.DictReader(lines)}
        places = [name.split("/") for name in archive.namelist() if "/" in name]
        assert {name for name in archive.namelist() if "/" not in name} == {"FOLDERS.csv", "MISSING.txt"}
    assert [classes.get(folder, folder) for folder, _ in places] == labels
    assert len({folder.casefold() for folder, _ in places}) == len(set(labels))
