"""Shards of webdataset: tars in which an image has its label beside it, as `0001.jpg` and `0001.cls`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from taps.data.dataset import Dataset, Sample
from taps.data.manifest import number_labels
from taps.data.shards import class_list
from taps.data.tars import TarSource
from taps.errors import DataError


def is_webdataset(source: TarSource) -> bool:
    """Whether images have labels beside them; the first one tells."""
    images = source.listing().images
    return bool(images) and _label_key(source, "/".join(images[0])) is not None


def load_webdataset(
    source: TarSource, path: Path, name: str, classes: Sequence[str] | str | Path | None = None
) -> Dataset:
    """Images and their labels: the text of `.cls`, or the member "label" of `.json`.

    A label is a class name, or with a class list its index; an image that has none stays without.
    """
    listing = source.listing()
    keys = ["/".join(parts) for parts in listing.images]
    texts = [_label_text(source, key) for key in keys]
    names, labels = number_labels(texts, class_list(classes, path), path)
    samples = tuple(map(Sample, keys, labels))
    kinds = listing.kinds.copy()
    for told in (".cls", ".json"):
        del kinds[told]  # these were read
    return Dataset(name, names, samples, source, skipped=kinds.total(), skipped_kinds=kinds)


def _label_key(source: TarSource, key: str) -> str | None:
    """The file that has the label of an image: its name is the same up to the first dot."""
    folder, slash, file = key.rpartition("/")
    stem = folder + slash + file.partition(".")[0]
    return next(
        (stem + end for end in (".cls", ".json") if source.prefix + stem + end in source.members), None
    )


def _label_text(source: TarSource, key: str) -> str:
    found = _label_key(source, key)
    if found is None:
        return ""
    try:
        text = source.read(found).decode().strip()
        label = json.loads(text).get("label") if found.endswith(".json") else text
    except (ValueError, AttributeError) as error:
        raise DataError(f"{found} in {source.paths[0]} holds no label ({error}).") from error
    return "" if label is None else str(label)
