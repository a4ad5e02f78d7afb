"""The images of a data set in the order of a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from taps.data.dataset import Dataset
from taps.data.orders import ordered
from taps.errors import DataError


class Images(Protocol):
    """What the loop needs of the images of a stream, each by its place."""

    @property
    def look(self) -> Callable[[int], Any] | None: ...
    def path(self, t: int) -> str: ...
    def image(self, t: int) -> Any: ...
    def label(self, t: int) -> int | None: ...
    def phase(self, t: int) -> int: ...


@dataclass(frozen=True)
class Stream:
    """A data set in an order. All labels are read through `label`.

    Attributes:
        dataset: The images.
        order: Indices into it.
        limit: Only the first so many of the order.
        phases: How often the stream has changed by each place, where it does.
        look: Gives an image by its index, instead of the data set, where more than its pixels is known.
    """

    dataset: Dataset
    order: Sequence[int]
    limit: int | None = None
    phases: Sequence[int] = ()
    look: Callable[[int], Any] | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise DataError(f"A stream of {self.limit} images is not possible; give at least one.")

    def __len__(self) -> int:
        return len(self.order) if self.limit is None else min(self.limit, len(self.order))

    def path(self, t: int) -> str:
        """Path of image `t` inside the folder, the zip or the manifest's folder."""
        return self.dataset.samples[self.order[t]].path

    def image(self, t: int) -> Any:
        """Image `t`, as `Learner.predict_one` takes it: pixels, unless `look` gives something else."""
        return (self.look or self.dataset.image)(self.order[t])

    def sha256(self, t: int) -> str:
        """The digest of the file of image `t`."""
        return hashlib.sha256(self.dataset.source.read(self.path(t))).hexdigest()

    def label(self, t: int) -> int | None:
        """Class of image `t`; None where it is unknown."""
        return self.dataset.samples[self.order[t]].label

    def phase(self, t: int) -> int:
        """How often the stream has changed before image `t`."""
        return self.phases[t] if self.phases else 0

    def note(self, t: int) -> str:
        """A remark about image `t`, such as the corruption applied to it."""
        return self.dataset.samples[self.order[t]].note

    def digest(self) -> str:
        """A checksum of all images, their labels and their order, whatever the limit."""
        samples = (self.dataset.samples[index] for index in self.order)
        text = "\n".join(f"{sample.path}\t{sample.label}" for sample in samples)
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def make_stream(
    dataset: Dataset, seed: int, *, shuffle: bool = True, limit: int | None = None, order: str = "shuffled"
) -> Stream:
    """A data set in one of `taps.data.orders.ORDERS` by a seed; or, unshuffled, in its own order."""
    if not shuffle:
        return Stream(dataset, list(range(len(dataset))), limit)
    if order == "shuffled":  # one order whatever the limit: a longer run goes on where a shorter one ended
        return Stream(dataset, ordered(dataset, order, seed)[0].tolist(), limit)
    places, phases = ordered(dataset, order, seed, limit)
    return Stream(dataset, places.tolist(), limit, phases.tolist())
