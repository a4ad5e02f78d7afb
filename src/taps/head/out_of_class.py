"""Open-set recognition: the probability that an image shows none of the classes."""

from __future__ import annotations

import numpy as np

from taps.head.arrays import softmax
from taps.head.linear import Logistic, with_constant
from taps.head.mixture import Mixture
from taps.saved import Shape
from taps.types import Array

OFFSETS: Array = np.array([[0.0, -3.0]])  # log-odds, inside and outside, that the fits start from: 1 in 21
PENALTIES = (0.03, 0.3)
FITS = ((0, 0), (1, 0))  # one for each of them
REFITTED = 64  # answers whose coefficients are refitted, at most


class OutOfClass:
    """Whether an image is outside all classes, learned from the answers "none of these".

    Three predictors are mixed by how well each predicted these answers: their share so far, (n + ½)/(N + 1)
    for n of N; and two logistic fits on the image's feature, with penalties 0.03 and 0.3. An answer that
    names a class counts as inside. Until the first image from outside, the probability is 0.

    Args:
        dim: d, length of a feature.
        refit: How many of the last answers are refitted with every new one, up to 64.

    Example:
        >>> outside = OutOfClass(dim=2)
        >>> outside.learn(np.array([1.0, 0.0]), False)
        >>> outside.probability(np.array([0.0, 1.0]))
        0.0
        >>> for _ in range(5):
        ...     outside.learn(np.array([0.0, 1.0]), True)
        ...     outside.learn(np.array([1.0, 0.0]), False)
        >>> [round(outside.probability(x), 1) for x in np.eye(2)]
        [0.0, 0.9]
    """

    def __init__(self, dim: int, refit: int = REFITTED) -> None:
        self.fits = Logistic(dim, 2, 1, PENALTIES, min(refit, REFITTED))
        self.mixture = Mixture(np.ones(1 + len(PENALTIES)))
        self.counts: Array = np.zeros(2)  # answers inside, outside

    def probability(self, feature: Array) -> float:
        """Probability that an image is outside all classes; 0 before the first such answer."""
        return float(self.mixture.weights() @ self._chances(feature)) if self.counts[1] else 0.0

    def _chances(self, feature: Array) -> Array:
        """Probability by each predictor."""
        scores = self.fits.scores(with_constant(feature[None]), FITS)
        share = (self.counts[1] + 0.5) / (self.counts.sum() + 1)
        return np.array([share, *softmax(OFFSETS + scores)[0, :, 1]])

    def learn(self, feature: Array, outside: bool) -> None:
        """Weigh the predictors by an answer, then learn it."""
        chances = self._chances(feature)
        self.mixture.learn(chances if outside else 1 - chances)
        self.fits.add(feature, OFFSETS, int(outside))
        self.counts = self.counts + np.eye(2)[int(outside)]

    def arrays(self) -> dict[str, Array]:
        """Everything that changes while learning; none of these arrays is ever changed in place."""
        own = {"counts": self.counts, "losses": self.mixture.losses[0], **self.fits.arrays()}
        return {f"outside.{name}": array for name, array in own.items()}

    def shapes(self) -> dict[str, Shape]:
        """Of `arrays`."""
        own: dict[str, Shape] = {"counts": (2,), "losses": self.mixture.log_prior.shape}
        return {f"outside.{name}": shape for name, shape in (own | self.fits.shapes(2, "outside")).items()}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from where `arrays` was taken."""
        self.counts = arrays["outside.counts"]
        self.mixture.restore(arrays["outside.losses"])
        self.fits.restore({name: arrays[f"outside.{name}"] for name in self.fits.arrays()})
