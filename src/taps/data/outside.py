"""Open-set streams: images of another data set, which belong to none of the classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taps.data.dataset import Dataset, JoinedSource
from taps.data.load import load_dataset
from taps.data.names import normalised
from taps.errors import DataError, SettingsError
from taps.types import OUTSIDE

FOLDER = "(outside)"  # above the keys of these images
SHARE = 0.2


def parse_outside(text: str) -> tuple[str, float]:
    """A data set and the share of the stream it makes up.

    >>> parse_outside("dtd.zip:0.5"), parse_outside("dtd.zip")
    (('dtd.zip', 0.5), ('dtd.zip', 0.2))
    """
    name, colon, number = text.rpartition(":")
    try:
        share = float(number) if colon else SHARE
    except ValueError:
        return text, SHARE
    if not 0.0 < share < 1.0:
        raise SettingsError(f"--outside {text}: the share must be above 0 and below 1, not {share:g}.")
    return (name, share) if colon else (text, SHARE)


def with_outside(dataset: Dataset, text: str, root: str | None = None) -> Dataset:
    """The data set with images of another one, labelled `OUTSIDE`.

    All images of the data set stay. Images of the other are drawn until they make up the share; its classes
    that both have are left out.

    Args:
        dataset: Whose classes count.
        text: Name or path of the other, and behind a colon its share of the stream (0.2 by default).
        root: Folder of the named sets.
    """
    name, share = parse_outside(text)
    other = load_dataset(name, root=root)
    own = {normalised(each) for each in dataset.classes}
    shared = {label for label, each in enumerate(other.classes) if normalised(each) in own}
    places = [i for i, sample in enumerate(other.samples) if sample.label not in shared]
    wanted = max(1, round(len(dataset) * share / (1 - share)))
    if len(places) < wanted:
        enough = int(1000 * len(places) / (len(places) + len(dataset))) / 1000
        raise DataError(
            f"{other.name} has {len(places):,} images of other classes, but {wanted:,} are {share:g} of the "
            f"stream; give another set, or a smaller share: {name}:{enough:g}."
        )
    drawn = sorted(np.random.default_rng(0).permutation(places)[:wanted].tolist())
    outside = [other.samples[index] for index in drawn]
    added = [replace(sample, path=f"{FOLDER}/{sample.path}", label=OUTSIDE) for sample in outside]
    source = JoinedSource({"": dataset.source, FOLDER: other.source})
    return replace(dataset, samples=(*dataset.samples, *added), source=source)
