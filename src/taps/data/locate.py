"""Find a named set below a data folder, whichever of the usual spellings it was unpacked with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from taps.data.registry import NamedSet, compact


def find_roots(named: NamedSet, root: Path, split: str = "test") -> list[Path]:
    """The folders there are that may hold the images, best first.

    `ImageNet-Sketch`, `imagenet_sketch` and `imagenet-sketch` are the same to it, and `root` may already
    point into the set.
    """
    found: list[Path] = []
    for candidate in named.roots:
        parts = PurePosixPath(candidate).parts
        if split == "train" and parts[-1] == "val":
            parts = (*parts[:-1], "train")
        for inside in range(len(parts) + 1):
            heads = root.resolve().parts[-inside:] if inside else ()
            if [compact(head) for head in heads] == [compact(part) for part in parts[:inside]]:
                found += [place for place in _descend(root, parts[inside:]) if place not in found]
    return found


def find_file(name: str, roots: list[Path], top: Path) -> Path | None:
    """A file beside the images or above them, not higher than the data folder."""
    top = top.resolve()
    for place in roots:
        for folder in [place, *place.parents]:
            if (folder / name).is_file():
                return folder / name
            # One above the data folder, in case it points into the set.
            if folder.resolve() == top.parent or folder == folder.parent:
                break
    return top / name if (top / name).is_file() else None


def _descend(folder: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    if not parts:
        yield folder
        return
    exact = folder / parts[0]
    if exact.is_dir():
        yield from _descend(exact, parts[1:])
    try:
        below = sorted(folder.iterdir())
    except OSError:
        return
    for child in below:
        if child != exact and compact(child.name) == compact(parts[0]) and child.is_dir():
            yield from _descend(child, parts[1:])
