"""Data sets of other libraries as a source of bytes: item by item, by its number."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from taps.data import Dataset
from taps.data.dataset import Sample
from taps.data.names import read_names
from taps.errors import DataError
from taps.images.decode import load_image


@dataclass(frozen=True)
class ItemSource:
    """Reads the image of item `key`, a number.

    Attributes:
        items: Anything that is indexed by a number.
        image: Where the image is in an item: a column's name or a place in a tuple.
    """

    items: Any
    image: str | int

    def read(self, key: str) -> bytes:
        """The bytes of the image: those it was stored as, where there are any, else a PNG of its pixels."""
        try:
            return as_bytes(self.items[int(key)][self.image], key)
        except (LookupError, TypeError, ValueError, OSError) as error:
            raise DataError(f"Item {key} cannot be read ({error}): check the data set.") from error


def as_bytes(image: Any, name: str) -> bytes:
    """The bytes of an image file; of pixels, those of a PNG."""
    if isinstance(image, dict):  # a Hugging Face image that was not decoded
        image = image.get("bytes") or image.get("path")
    if isinstance(image, bytes):
        return image
    if isinstance(image, str | Path):
        return Path(image).read_bytes()
    buffer = io.BytesIO()
    Image.fromarray(load_image(image, name=name)).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def make_dataset(
    source: ItemSource, values: Sequence[Any], classes: Sequence[str] | None, name: str
) -> Dataset:
    """A data set of numbered items.

    Args:
        source: Gives the images.
        values: The label of each: a number, or a class's name; negative, empty or None where nobody knows.
        classes: Names of the classes; the names among the labels, sorted, unless given.
        name: Short name, for tables.
    """
    known = [None if value is None or value == "" else value for value in values]
    texts = sorted({value for value in known if isinstance(value, str)})
    if classes is None and not texts and any(value is not None for value in known):
        raise DataError("The labels are numbers; give the names of the classes they count.")
    names = read_names(classes or texts) if classes or texts else ()
    number = _numbering(names)
    samples = tuple(Sample(str(index), number(value)) for index, value in enumerate(known))
    return Dataset(name, names, samples, source)


def _numbering(names: tuple[str, ...]) -> Callable[[Any], int | None]:
    places = {name: index for index, name in enumerate(names)}

    def number(value: Any) -> int | None:
        if isinstance(value, str):
            place = places.get(" ".join(value.replace("_", " ").split()))
            if place is None:
                raise DataError(f"The label {value!r} is not one of the {len(names)} classes.")
            return place
        index = -1 if value is None else int(np.asarray(value))
        if index >= len(names):
            raise DataError(
                f"The label {index} is out of range: only {len(names)} classes: give all their names."
            )
        return index if index >= 0 else None

    return number
