"""Acquisition: scores an image, the higher the more its label is wanted. Each rule costs little per image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taps.errors import StateError
from taps.saved import check_arrays, check_plain, whole
from taps.types import Array

SCORES = (
    "random",
    "entropy",
    "margin",
    "confidence",
    "leverage",
    "coverage",
    "density",
    "sensitivity",
    "vessal",
    "drift",
    "clusters",
)
NOISE = 0.01  # EATTA's standard deviation, for each entry of a feature
ANYWAY = 1e6  # what is put on record as the score of an image that was drawn at random
MOST = 128  # clusters for answers, at most: memory and time for an image stay constant


class Acquisition:
    """Scores images by one rule: how much an answer for each is wanted.

    Args:
        rule: One of `SCORES`.
        seed: For chance. Draws follow from it and from the count of images, so there is no generator to save.
    """

    def __init__(self, rule: str, seed: int) -> None:
        self.rule, self.seed, self.images = rule, seed, 0
        self.clusters = Clusters()  # of the images, where the rule has them

    def score(
        self,
        probs: Array,
        uncertainty: float,
        counts: Array,
        density: float,
        leverage: Callable[[], float],
        sensitivity: Callable[[], float],
        before: Callable[[], Array],
        clustered_by: Callable[[], Array],
    ) -> float:
        """How much the answer for this image is wanted.

        Args:
            probs: Prediction of the image.
            uncertainty: H_t.
            counts: Labels held of each class.
            density: How typical the image is: mean cosine to the images most like it.
            leverage: How new it is to the labels.
            sensitivity: By how much its prediction changes with a little noise on its feature.
            before: Its prediction without any answer.
            clustered_by: The vector of `joined`.
        """
        rules: dict[str, Callable[[], float]] = {
            "random": lambda: float(np.random.default_rng([self.seed, self.images]).random()),
            "entropy": lambda: uncertainty,
            "margin": lambda: narrowness(probs),
            "confidence": lambda: 1.0 - float(probs.max()),
            "leverage": leverage,
            "coverage": lambda: scarcity(probs, counts),
            "density": lambda: max(density, 0.0) * narrowness(probs),
            "sensitivity": sensitivity,
            "vessal": lambda: gradient_leverage(probs, leverage()),
            "drift": lambda: belief_drift(probs, before()),
            "clusters": lambda: self.clusters.score(clustered_by(), len(probs)),
        }
        score = rules[self.rule]()
        self.images += 1
        return score

    def answered(self, feature: Callable[[], Array], times: int = 1) -> None:
        """Count an answer for an image that was scored, or with −1 one that is taken back."""
        if self.rule == "clusters":
            self.clusters.answer(feature(), times)

    def noise(self, dim: int) -> Array:
        """Noise for the present image's feature, to measure how sensitive its prediction is [d]."""
        return NOISE * np.random.default_rng([self.seed, self.images, 2]).standard_normal(dim)

    def values(self) -> dict[str, Any]:
        """What must be saved."""
        return {"rule": self.rule, "seed": self.seed, "images": self.images}

    def restore(self, values: dict[str, Any]) -> None:
        """Go on from what was saved, by the same rule and with the seed it was started with."""
        check_plain(values, {"seed": whole(), "images": whole()}, "acquisition")
        if values["rule"] != self.rule:
            raise StateError(f"The saved learner asks by {values['rule']!r}, this one by {self.rule!r}.")
        self.seed, self.images = int(values["seed"]), int(values["images"])


def narrowness(probs: Array) -> float:
    """1 − margin between the two likeliest classes: 1 where they are equally likely.

    >>> round(narrowness(np.array([0.1, 0.6, 0.3])), 4)
    0.7
    """
    second, first = np.partition(probs, -2)[-2:]
    return float(1.0 - (first - second))


def novelty(features: Array, known: Array) -> Array:
    """1 − highest cosine of each image [N, d] to the known ones [M, d]; 1 where none is known [N].

    Features have length 1.

    >>> novelty(np.eye(2), np.array([[0.6, 0.8]])).round(2).tolist()
    [0.4, 0.2]
    """
    if not len(known) or not len(features):
        return np.ones(len(features))
    likeness: Array = np.clip(features @ known.T, 0.0, 1.0).max(axis=1)
    return 1.0 - likeness


def scarcity(probs: Array, counts: Array) -> float:
    """How few labels the likely classes have: the expected 1 / (1 + labels of its class).

    >>> scarcity(np.array([0.5, 0.5]), np.array([0.0, 3.0]))
    0.625
    """
    return float((probs / (1.0 + counts)).sum())


def gradient_leverage(probs: Array, leverage: float) -> float:
    """How new the gradient of the likeliest class is to the labels: VeSSAL's rule.

    The gradient of a linear head is (p − e_ŷ) ⊗ x; with the labelled images' Gram matrix alike for each
    class, g'A⁻¹g is |p − e_ŷ|² times the leverage of x. The policy turns it into questions at a rate.

    >>> round(gradient_leverage(np.array([0.75, 0.25]), leverage=2.0), 4)
    0.25
    """
    off = probs.copy()
    off[probs.argmax()] -= 1.0
    return float(off @ off) * leverage


def belief_drift(probs: Array, before: Array) -> float:
    """How far answers have moved a prediction: |p − p₀|, as WISE-ATTA compares a model with a slower one.

    >>> round(belief_drift(np.array([0.9, 0.1]), np.array([0.6, 0.4])), 4)
    0.4243
    """
    return float(np.linalg.norm(probs - before))


def joined(feature: Array, probs: Array, text: NDArray[Any]) -> Array:
    """What images are clustered by, of length 1: the feature [d], then the mean text of the prediction.

    >>> joined(np.array([0.0, 3.0]), np.array([1.0, 0.0]), np.array([[4.0, 0.0], [0.0, 1.0]])).tolist()
    [0.0, 0.6, 0.8, 0.0]
    """
    both: Array = np.concatenate([feature, probs @ text])
    return both / max(float(np.linalg.norm(both)), 1e-12)


class Clusters:
    """CB's clusters: spherical k-means of one pass; an image joins the cluster whose mean is most like it.

    There is a cluster for each class and one more for each answer, here up to `MOST`; each begins with the
    next image that comes.

    Attributes:
        sums: Of the images of each cluster.
        sizes: How many these are.
        labels: How many of them have an answer.
    """

    sums: Array
    sizes: Array
    labels: Array

    def __init__(self) -> None:
        self.sums, self.sizes, self.labels = np.zeros((0, 0)), np.zeros(0), np.zeros(0)

    def score(self, image: Array, classes: int) -> float:
        """Count an image, a vector of `joined`, and score it.

        The score is its cluster's share of all images / (1 + answers there) · cosine to the cluster's mean:
        the highest is where the smallest share is labelled, of those without any the largest cluster.
        """
        self._make_room(classes + MOST, len(image))
        full = self.begun >= classes + min(MOST, int(self.labels.sum()))
        place, cosine = self._nearest(image) if full else (self.begun, 1.0)
        self.sums[place] += image
        self.sizes[place] += 1
        return max(cosine, 0.0) * float(self.sizes[place] / self.sizes.sum() / (1 + self.labels[place]))

    def answer(self, feature: Array, times: int) -> None:
        """Count an answer of an image, or with −1 one that is taken back.

        Its feature alone is compared: its prediction has changed since it came.
        """
        if not self.begun:
            return
        place, _ = self._nearest(feature)
        self.labels[place] = max(0.0, self.labels[place] + times)

    @property
    def begun(self) -> int:
        """Clusters that have an image."""
        return int((self.sizes > 0).sum())

    def _make_room(self, rows: int, dim: int) -> None:
        """Allocate all clusters there may ever be, so that memory does not grow."""
        if (more := rows - len(self.sums)) > 0:
            self.sums = np.vstack([self.sums.reshape(-1, dim), np.zeros((more, dim))])
            self.sizes, self.labels = (np.append(each, np.zeros(more)) for each in (self.sizes, self.labels))

    def _nearest(self, image: Array) -> tuple[int, float]:
        """The cluster most like an image, and the cosine; `image` may be the feature alone."""
        sums = self.sums[: self.begun, : len(image)]
        cosines = sums @ image / np.maximum(np.linalg.norm(sums, axis=1), 1e-12)
        place = int(cosines.argmax())
        return place, float(cosines[place])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that changes; nothing before the first image."""
        found = {"cluster_sums": self.sums, "cluster_sizes": self.sizes, "cluster_labels": self.labels}
        return found if len(self.sums) else {}

    def restore(self, arrays: dict[str, NDArray[Any]], dim: int) -> None:
        """Go on from where `arrays` was taken; `dim` is the length of a vector of `joined`."""
        if not any(name.startswith("cluster_") for name in arrays):
            return
        sizes: dict[str, int] = {}
        check_arrays(arrays, {"cluster_sums": ("clusters", dim)}, sizes=sizes)
        both = {"cluster_sizes": ("clusters",), "cluster_labels": ("clusters",)}
        check_arrays(arrays, both, at_least=0, sizes=sizes)
        self.sums, self.sizes, self.labels = (
            np.array(arrays[f"cluster_{name}"]) for name in ("sums", "sizes", "labels")
        )
