"""Labelled images for training and statistics: one data set, or several read as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from taps.data import Dataset, load_dataset, subset_classes
from taps.data.dataset import Source
from taps.errors import DataError


@dataclass(frozen=True)
class JoinedSource:
    """Several sources; a key starts with the number of the one it belongs to."""

    parts: tuple[Source, ...]

    def read(self, key: str) -> bytes:
        number, _, inner = key.partition("/")
        return self.parts[int(number)].read(inner)


def labelled_images(
    paths: Sequence[str], *, root: Path | None = None, classes: int | None = None, seed: int = 0
) -> Dataset:
    """The training split of one or several data sets, or only some of its classes."""
    joined = join([load_dataset(path, root=root, split="train") for path in paths])
    if not joined.classes:
        raise DataError(f"{joined.name} has no class folders; images with labels are needed.")
    return joined if classes is None else subset_classes(joined, classes, seed)


def join(parts: Sequence[Dataset]) -> Dataset:
    """Data sets as one: classes of the same name are the same class."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.transforms for part in parts):
        raise DataError("Data sets with a corruption cannot be joined; join the clean ones.")
    same = all(part.classes == first.classes for part in parts)
    names = first.classes if same else tuple(dict.fromkeys(name for part in parts for name in part.classes))
    if not same and any(len(set(part.classes)) < len(part.classes) for part in parts):
        raise DataError(
            "Data sets with two classes of one name can be joined only where their classes are the same."
        )
    samples = []
    for number, part in enumerate(parts):
        place = list(range(len(names))) if same else [names.index(name) for name in part.classes]
        samples += [
            replace(s, key=f"{number}/{s.key}", label=None if s.label is None else place[s.label])
            for s in part.samples
        ]
    return Dataset(
        name="+".join(part.name for part in parts),
        classes=names,
        samples=tuple(samples),
        source=JoinedSource(tuple(part.source for part in parts)),
        template=first.template,
        skipped_kinds=sum((Counter(part.skipped_kinds) for part in parts), Counter()),
    )
