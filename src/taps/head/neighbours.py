"""The recent images, labelled or not, and the votes of those nearest to an image."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.head.arrays import AnyArray, at_least, largest, library, softmax
from taps.saved import Shape, check_arrays
from taps.types import Array

Kept = NDArray[np.float32]
SIZE = 1000  # images that are remembered
NEAR = 16  # the nearest of them, which vote
STEEP = 20.0  # by how much a vote falls with distance: e^(20 (cosine − 1))
TWIN = 0.999  # cosine from which two images are the same one, and may not vote for each other
FAINT = 0.02  # spread over all classes, so that no class is impossible
LOWEST = -50.0  # a log-probability below this is taken for this


@dataclass(frozen=True)
class Neighbourhood:
    """What the head knows of one image, and of the earlier images most like it.

    Attributes:
        rows: The image itself, then its m neighbours (none while too few were seen): cosine to the image,
            whitened features, log-probabilities of the bases [1 + m, 1 + F·d + B·K].
        shape: F, d, B.
    """

    rows: AnyArray
    shape: tuple[int, int, int]

    @property
    def features(self) -> AnyArray:
        """A view of those of all images [1 + m, F, d]."""
        count, dim, _ = self.shape
        return self.rows[:, 1 : 1 + count * dim].reshape(-1, count, dim)

    @property
    def logs(self) -> AnyArray:
        """A view of the bases' log-probabilities of all images [1 + m, B, K]."""
        count, dim, bases = self.shape
        flat = self.rows[:, 1 + count * dim :]
        return flat.reshape(len(flat), bases, flat.shape[1] // bases)

    @property
    def cosines(self) -> AnyArray:
        """Of the image to its neighbours [m]."""
        return self.rows[1:, 0]

    @property
    def density(self) -> float:
        """How typical the image is: mean cosine to its neighbours; 1 while there are none."""
        return float(self.cosines.mean()) if len(self.cosines) else 1.0

    @property
    def unit(self) -> AnyArray:
        """Direction of the image's last feature, by which images are compared [d]."""
        last = self.features[0, -1]
        # A blank image may have a feature of length 0: its cosines are then 0, not NaN.
        return last / at_least(library(last).linalg.norm(last), 1e-12)

    def wide(self) -> Neighbourhood:
        """The same in double precision, with no log-probability so low that it is infinite."""
        wide = Neighbourhood(self.rows.astype(np.float64), self.shape)
        np.maximum(wide.logs, LOWEST, out=wide.logs)
        return wide

    def widened(self, logs: Kept) -> Neighbourhood:
        """The same with new log-probabilities of the image itself, after classes were added [B, K].

        Its neighbours were seen before these classes were added, and do not vote for them.
        """
        new = logs.shape[1] - self.logs.shape[2]
        padded = np.pad(self.logs, ((0, 0), (0, 0), (0, new)), constant_values=LOWEST)
        padded[0] = logs
        features = self.rows[:, : 1 + self.features[0].size]
        return Neighbourhood(np.concatenate([features, padded.reshape(len(padded), -1)], axis=1), self.shape)


class RecentImages:
    """A ring buffer of the last `size` images, in single precision.

    Args:
        features: How many features an image has, and of what length [F, d].
        logs: How many predictions come with it, of how many classes [B, K].
    """

    def __init__(self, features: tuple[int, int], logs: tuple[int, int], size: int = SIZE) -> None:
        self.shape = (*features, logs[0])
        self.rows: Kept = np.zeros((size, 1 + math.prod(features) + math.prod(logs)), dtype=np.float32)
        self.unit: Kept = np.zeros((size, features[1]), dtype=np.float32)
        self.seen = 0

    @property
    def held(self) -> int:
        return min(self.seen, len(self.unit))

    def look(self, features: Array, logs: Array) -> Neighbourhood:
        """Find the neighbours of an image of whitened features and log-probabilities, then remember it."""
        row = row_of(features, logs).astype(np.float32)
        found = self.around(row)
        self.remember(row)
        return found

    def remember(self, row: Kept) -> None:
        """Add an image, a row of `Neighbourhood`; a full ring drops the oldest."""
        at = self.seen % len(self.unit)
        self.rows[at], self.unit[at] = row, Neighbourhood(row[None], self.shape).unit
        self.seen += 1

    def around(self, row: Kept) -> Neighbourhood:
        """An image and its neighbours among those remembered now; it is not its own neighbour."""
        found = Neighbourhood(row[None], self.shape)
        if self.held < NEAR:
            return found
        return replace(found, rows=with_neighbours(row, found.unit, self.rows, self.unit[: self.held]))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that is remembered."""
        held = Neighbourhood(self.rows[: self.held], self.shape)
        return {
            "ring.features": held.features,
            "ring.logs": held.logs,
            "ring.unit": self.unit[: self.held],
            "ring.seen": np.array([float(self.seen)]),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from where `arrays` was taken; classes may have been added since."""
        count, dim, bases = self.shape
        check_arrays(arrays, {"ring.seen": (1,)}, at_least=0)
        self.seen = int(arrays["ring.seen"][0])
        classes = range(1, Neighbourhood(self.rows[:1], self.shape).logs.shape[2] + 1)
        shapes: dict[str, Shape] = {
            "ring.features": (self.held, count, dim),
            "ring.logs": (self.held, bases, classes),
            "ring.unit": (self.held, dim),
        }
        check_arrays(arrays, shapes, kind="float32")
        held = Neighbourhood(self.rows[: self.held], self.shape)
        held.rows[:], held.features[:] = 1.0, arrays["ring.features"]
        new = held.logs.shape[2] - arrays["ring.logs"].shape[2]
        held.logs[:] = np.pad(arrays["ring.logs"], ((0, 0), (0, 0), (0, new)), constant_values=LOWEST)
        self.unit[: self.held] = arrays["ring.unit"]


def row_length(shape: tuple[int, int, int], classes: int) -> int:
    """Length of an image's row, of F, d, B and K."""
    count, dim, bases = shape
    return 1 + count * dim + bases * classes


def row_of(features: AnyArray, logs: AnyArray) -> AnyArray:
    """An image as `Neighbourhood` has it, of its features [F, d] and log-probabilities [B, K]."""
    own = library(features)
    first = own.ones_like(features[0, :1])
    return own.concatenate([first, features.ravel(), at_least(logs, LOWEST).ravel()])


def with_neighbours(
    row: AnyArray, unit: AnyArray, rows: AnyArray, units: AnyArray, absent: AnyArray = 0.0
) -> AnyArray:
    """The row of an image and those of the images most like it, as `Neighbourhood` has them.

    Images are compared by their units; `absent` is 0 for those that are there, far more for the others.
    """
    own, cosines = library(row), units @ unit - absent
    cosines = own.where(cosines > TWIN, -1.0, cosines)
    places = largest(cosines, NEAR)
    found = own.concatenate([row[None], rows[places]])
    found[1:, 0] = cosines[places]
    return found


def vote(beliefs: AnyArray, cosines: AnyArray, usual: AnyArray, known: AnyArray = 1.0) -> AnyArray:
    """Log-odds that an image's neighbours vote for [K]; 0 where there are none.

    Args:
        beliefs: Probabilities of each neighbour [m, K].
        cosines: Their cosine to the image [m].
        usual: Mean probabilities over the stream [K], which a vote is measured against.
        known: Whether a class was there when a neighbour was seen [m, K]; elsewhere `usual` is taken.

    >>> vote(np.array([[0.9, 0.1]]), np.array([0.8]), np.array([0.5, 0.5])).round(2).tolist()
    [0.58, -1.53]
    """
    own = library(usual)
    if not len(cosines):
        return own.zeros_like(usual)
    weights = softmax(STEEP * cosines)[:, None] * known
    count = weights.sum(axis=0)
    # `where` computes both sides: the guard keeps 0 / 0 out of the one that is not taken.
    mean = own.where(count > 0, (weights * beliefs).sum(axis=0) / at_least(count, 1e-300), usual)
    faint = FAINT / len(usual)
    return own.log((mean + faint) / (usual + faint))
