"""Data sets of the Hugging Face library `datasets`; it is not imported, so it need not be installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taps.adapters.items import ItemSource, make_dataset
from taps.data import Dataset
from taps.errors import DataError


def from_huggingface(
    dataset: Any,
    *,
    image: str | None = None,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    name: str = "huggingface",
) -> Dataset:
    """A data set that `datasets.load_dataset(..., split=...)` gave; nothing is decoded or copied.

    Args:
        dataset: One split, not step.
        image: Column of the images; the first with an `Image` feature unless given.
        label: Column of the labels; the first with a `ClassLabel` feature, or "label", unless given.
        classes: Names of the classes; those of the `ClassLabel` unless given.
        name: Short name, for tables.
    """
    features = getattr(dataset, "features", None)
    if features is None or not hasattr(dataset, "column_names") or not hasattr(dataset, "__getitem__"):
        raise DataError(
            "A Hugging Face data set is taken one split at a time and not step: "
            'load_dataset(..., split="test").'
        )
    image = image or _first(features, "decode") or "image"
    label = label or _first(features, "names") or ("label" if "label" in features else None)
    for column in (image, *([label] if label else [])):
        if column not in features:
            raise DataError(f"Unknown column {column!r}; the columns are {', '.join(features)}.")
    if classes is None and label is not None:
        classes = getattr(features[label], "names", None)
    values = list(dataset[label]) if label is not None else [None] * len(dataset)
    return make_dataset(ItemSource(_undecoded(dataset, image), image), values, classes, name)


def _first(features: Any, attribute: str) -> str | None:
    """The first column whose feature has an attribute: `decode` is an image's, `names` a class label's."""
    return next((column for column, feature in features.items() if hasattr(feature, attribute)), None)


def _undecoded(dataset: Any, image: str) -> Any:
    """The same with the bytes of images as they are stored; decoding is done once, here."""
    feature = dataset.features[image]
    if not getattr(feature, "decode", False):
        return dataset
    return dataset.cast_column(image, type(feature)(decode=False))
