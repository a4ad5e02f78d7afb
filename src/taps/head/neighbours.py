"""What the nearest neighbours of an image are believed to show: the unlabelled stream has a vote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.errors import StateError

Array = NDArray[np.float64]
Kept = NDArray[np.float32]
SIZE = 1000  # images that are remembered
NEAR = 16  # of which so many vote
STEEP = 20.0  # by how much a vote falls with distance: e^(20 (cosine − 1))
TWIN = 0.999  # cosine from which two images are the same one, and may not vote for each other
FAINT = 0.02  # spread over all classes, so that no class is impossible
LOWEST = -50.0  # a log-probability below this is taken for this


@dataclass(frozen=True)
class Neighbourhood:
    """What the head knows of one image, and of the earlier images most like it.

    Attributes:
        features: As the whitener gave them; of the image itself, then of its neighbours [1 + m, F, d].
        logs: Log-probabilities the bases gave them [1 + m, B, K].
        cosines: Of the image to its neighbours [m], m = 0 while too few were seen.
    """

    features: Kept
    logs: Kept
    cosines: Kept

    @property
    def density(self) -> float:
        """How typical the image is: mean cosine to its neighbours; 1 while there are none."""
        return float(self.cosines.mean()) if len(self.cosines) else 1.0

    def packed(self) -> Kept:
        """All of it in one array, a row for each image."""
        rows = len(self.features)
        first = np.concatenate([np.ones(1, dtype=np.float32), self.cosines])
        return np.concatenate(
            [first[:, None], self.features.reshape(rows, -1), self.logs.reshape(rows, -1)], axis=1
        )

    @classmethod
    def unpacked(cls, rows: Kept, features: tuple[int, int], bases: int) -> Neighbourhood:
        """The inverse of `packed`, for so many features of one length and so many bases."""
        count, dim = features
        after = 1 + count * dim
        return cls(
            rows[:, 1:after].reshape(-1, count, dim),
            rows[:, after:].reshape(len(rows), bases, -1),
            rows[1:, 0],
        )

    def widened(self, logs: Kept) -> Neighbourhood:
        """The same with what the bases say of the image itself when classes were added [B, K].

        Its neighbours were seen before anybody thought of these classes, and do not vote for them.
        """
        new = logs.shape[1] - self.logs.shape[2]
        others = np.pad(self.logs[1:], ((0, 0), (0, 0), (0, new)), constant_values=LOWEST)
        return Neighbourhood(self.features, np.concatenate([logs[None], others]), self.cosines)


class RecentImages:
    """A ring buffer of the last images, in single precision.

    Args:
        features: How many features an image has, and of what length [F, d].
        logs: How many predictions come with it, of how many classes [B, K].
        size: How many images are remembered.
    """

    def __init__(self, features: tuple[int, int], logs: tuple[int, int], size: int = SIZE) -> None:
        self.features: Kept = np.zeros((size, *features), dtype=np.float32)
        self.logs: Kept = np.zeros((size, *logs), dtype=np.float32)
        self.unit: Kept = np.zeros((size, features[1]), dtype=np.float32)
        self.seen = 0

    @property
    def held(self) -> int:
        return min(self.seen, len(self.unit))

    def look(self, features: Array, logs: Array) -> Neighbourhood:
        """Find an image's neighbours, then remember it.

        Args:
            features: As the whitener gave them [F, d]; the last one is compared.
            logs: Log-probabilities of the bases [B, K].
        """
        mine, said = features.astype(np.float32), np.maximum(logs, LOWEST).astype(np.float32)
        found = self.around(mine, said)
        self.remember(mine, said)
        return found

    def remember(self, features: Kept, logs: Kept) -> None:
        """Take in an image, as `Neighbourhood` has it; the oldest one goes where there is no room."""
        at = self.seen % len(self.unit)
        self.features[at], self.logs[at], self.unit[at] = features, logs, _unit(features)
        self.seen += 1

    def around(self, features: Kept, logs: Kept) -> Neighbourhood:
        """An image's neighbours among those that are remembered now; itself is none of them.

        Args:
            features: As `Neighbourhood` has them [F, d].
            logs: Log-probabilities of the bases [B, K].
        """
        places, cosines = self._nearest(_unit(features))
        return Neighbourhood(
            np.concatenate([features[None], self.features[places]]),
            np.concatenate([logs[None], self.logs[places]]),
            cosines,
        )

    def _nearest(self, unit: Kept) -> tuple[NDArray[np.intp], Kept]:
        if self.held < NEAR:
            return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.float32)
        cosines = self.unit[: self.held] @ unit
        cosines[cosines > TWIN] = -1.0
        places = np.argpartition(-cosines, NEAR - 1)[:NEAR]
        return places, cosines[places]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that is remembered."""
        return {
            "ring.features": self.features[: self.held],
            "ring.logs": self.logs[: self.held],
            "ring.unit": self.unit[: self.held],
            "ring.seen": np.array([float(self.seen)]),
        }

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from where `arrays` was taken; classes may have been added since."""
        if arrays["ring.features"].shape[1:] != self.features.shape[1:]:
            raise StateError("The saved head remembers other features; use the saved model and settings.")
        self.seen = int(arrays["ring.seen"][0])
        new = self.logs.shape[2] - arrays["ring.logs"].shape[2]
        self.logs[: self.held] = np.pad(
            arrays["ring.logs"], ((0, 0), (0, 0), (0, new)), constant_values=LOWEST
        )
        self.features[: self.held], self.unit[: self.held] = arrays["ring.features"], arrays["ring.unit"]


def _unit(features: Kept) -> Kept:
    last: Kept = features[-1]
    # A blank image may have a feature of length 0: its cosines are then 0, not NaN.
    return last / np.float32(max(float(np.linalg.norm(last)), 1e-12))


def vote(beliefs: Array, cosines: Kept, usual: Array, known: Kept | None = None) -> Array:
    """Log-odds that an image's neighbours speak for [K]; 0 where there are none.

    Args:
        beliefs: Probabilities of each neighbour [m, K].
        cosines: Their likeness to the image [m].
        usual: Mean probabilities over the stream [K]: what any image would say.
        known: 1 for the classes that were there when a neighbour was seen, else 0 [m, K]: of the others it
            says what is usual.

    >>> vote(np.array([[0.9, 0.1]]), np.array([0.8]), np.array([0.5, 0.5])).round(2).tolist()
    [0.58, -1.53]
    """
    if not len(cosines):
        return np.zeros(len(usual))
    weights = np.exp(STEEP * (cosines - cosines.max()).astype(np.float64))
    heard = np.ones_like(beliefs) if known is None else known
    count = weights @ heard
    # `np.where` computes both sides: the guard keeps 0 / 0 out of the one that is not taken.
    said = np.where(count > 0, weights @ (heard * beliefs) / np.maximum(count, 1e-300), usual)
    faint = FAINT / len(usual)
    odds: Array = np.log(said + faint) - np.log(usual + faint)
    return odds
