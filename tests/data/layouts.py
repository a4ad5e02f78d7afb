"""Miniature copies of data sets in every layout met in the wild. Image files hold their own key as bytes."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def put(path: Path, content: str | None = None) -> Path:
    """Write a file with its folders; without content, its own name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(path.name if content is None else content)
    return path


def folder_of(base: Path, keys: Iterable[str]) -> Path:
    for key in keys:
        put(base / key, key)
    return base


def zip_of(path: Path, keys: Iterable[str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for key in keys:
            archive.writestr(key, key)
    return path


def tar_of(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """A tar as programs write it: every file with its header, no folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def coop(root: Path, images: str, split_file: str, test: list[tuple[str, int, str]]) -> Path:
    """A CoOp copy: images below `images`, the split file in the set's own folder."""
    for path, _, _ in test:
        put(root / images / path)
    put(root / images.split("/")[0] / split_file, json.dumps({"train": [], "val": [], "test": test}))
    return root
