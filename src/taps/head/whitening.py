"""Features of an image, centred on the stream and whitened by how views of one image differ."""

from __future__ import annotations

import numpy as np

from taps.head.arrays import AnyArray, library
from taps.saved import Shape, check_arrays
from taps.types import Array

SHRINK = 10.0  # images that are taken to lie at the origin, so that the first ones do not make the centre
FIRST, LAST = 8, 512  # images after which the views' metric is first and last made; in between at doublings
WAIT = 16  # images whose rows wait to be added to the covariances in one product
FLOOR = 0.3  # share of the mean variance that is added in every direction
VIEWS = 16  # of an image, whose spread is measured
SAVED = ("mean", "between", "within", "transform", "apart", "centred")


class FeatureWhitener:
    """Centred features of an image: [view 0], or [view 0, mean of its views in the views' metric].

    Features of one model lie in a narrow cone, so their mean over the stream is subtracted. Views of one
    image differ in the crop, not in what it shows: directions in which they spread say little about classes.
    With C the covariance of views around their image's mean, over all images so far, scaled to a mean
    variance of 1, the mean of the views is multiplied by (C + 0.3·I)^(−1/2), and by a factor that keeps the
    mean length. An image keeps the features it was given; the centre of later ones is better.

    Args:
        dim: d, length of a feature.
        several: Whether images come with several views.

    Example:
        >>> whitener = FeatureWhitener(dim=2, several=False)
        >>> whitener.see(np.array([[1.0, 0.0]])).round(3).tolist()
        [[0.909, 0.0]]
    """

    def __init__(self, dim: int, several: bool) -> None:
        self.several = several
        self.seen = 0
        self.mean: Array = np.zeros((1 + several, dim))
        self.transform: Array = np.eye(dim) if several else np.zeros((0, 0))
        self.take_in(np.zeros_like(self.transform), np.zeros_like(self.transform))

    def see(self, views: Array) -> Array:
        """Centred features of an image [1 or 2, d], of its views of length 1, view 0 first [V, d]."""
        self.seen += 1
        self.mean, features = centred(views, self.mean, self.seen)
        if self.several:
            self._measure(views, features[1])
            features[1] = features[1] @ self.transform
        return np.asarray(features)

    def _measure(self, views: Array, mean: Array) -> None:
        """Add to the two covariances; recompute the transform where it is time."""
        if self.seen > LAST:
            return
        place, apart = (self.seen - 1) % WAIT, apart_of(views)
        self.apart[place * VIEWS : place * VIEWS + len(apart)] = apart
        self.centred[place] = mean
        if self.seen % WAIT == 0 or is_time(self.seen):
            self.take_in(*self.covariances())
        if is_time(self.seen):
            self.transform = metric(self.within, self.between)

    def covariances(self) -> tuple[Array, Array]:
        """Sums over all images so far: of views around their mean, and of centred means."""
        if not self.several:
            return self.within, self.between
        return self.within + self.apart.T @ self.apart, self.between + self.centred.T @ self.centred

    def take_in(self, within: Array, between: Array) -> None:
        """Set these sums over all images so far; no row waits any more."""
        self.within, self.between = within, between
        # Rows of views and of images that wait to be added, and zeros.
        dim = self.mean.shape[1]
        self.apart: Array = np.zeros((self.several * WAIT * VIEWS, dim))
        self.centred: Array = np.zeros((self.several * WAIT, dim))

    def arrays(self) -> dict[str, Array]:
        """Everything that changes with the images; to be copied, as the next image writes to some of it."""
        return {"lens.seen": np.array([float(self.seen)])} | {f"lens.{n}": getattr(self, n) for n in SAVED}

    def restore(self, arrays: dict[str, Array]) -> None:
        """Go on from where `arrays` was taken."""
        check_arrays(arrays, {"lens.seen": (1,)}, at_least=0)
        shapes: dict[str, Shape] = {f"lens.{name}": getattr(self, name).shape for name in SAVED}
        dim = self.mean.shape[1]  # and another version lets fewer images wait
        shapes |= {"lens.apart": (range(WAIT * VIEWS + 1), dim), "lens.centred": (range(WAIT + 1), dim)}
        check_arrays(arrays, shapes)
        self.seen = int(arrays["lens.seen"][0])
        for name in SAVED:
            setattr(self, name, arrays[f"lens.{name}"].copy())
        if len(self.centred) != self.several * WAIT:  # another version lets fewer images wait
            self.take_in(*self.covariances())


def centred(views: AnyArray, mean: AnyArray, number: AnyArray) -> tuple[AnyArray, AnyArray]:
    """The stream's mean with an image, and the image's features minus it, both [F, d].

    Args:
        views: Features of its views [V, d].
        mean: The stream's mean before it: of view 0, and of the mean of the views where there are several.
        number: Of the image in the stream, from 1 on.
    """
    given = library(views).stack([views[0], views.mean(axis=0)][: len(mean)])
    mean = mean + (given - mean) / number
    return mean, given - mean * (number / (number + SHRINK))


def apart_of(views: AnyArray) -> AnyArray:
    """Views minus their mean [V, d], scaled so that their products sum to a covariance."""
    some = views[:VIEWS]
    return (some - some.mean(axis=0)) / len(some) ** 0.5


def is_time(seen: int) -> bool:
    """Whether the transform is recomputed after `seen` images."""
    return FIRST <= seen <= LAST and seen & (seen - 1) == 0


def metric(within: Array, between: Array) -> Array:
    """(C + 0.3·I)^(−1/2), C being `within` at a mean variance of 1, scaled so that lengths stay on average.

    >>> metric(np.zeros((2, 2)), np.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    dim, total = len(within), float(np.trace(within))
    if total < 1e-9:  # the views are all alike
        return np.eye(dim)
    values, vectors = np.linalg.eigh(within * (dim / total))
    shrunk = (vectors / np.sqrt(np.maximum(values, 0.0) + FLOOR)) @ vectors.T
    length = float(np.vdot(shrunk @ between, shrunk))  # the trace of shrunk · between · shrunk
    scaled: Array = shrunk * np.sqrt(float(np.trace(between)) / max(length, 1e-12))
    return scaled
