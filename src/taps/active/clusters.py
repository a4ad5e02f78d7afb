"""Clusters of a stream, for CB's rule: ask where few images have an answer, about the most typical one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST = 128  # clusters for answers, at most: memory and time for an image stay constant


def joined(feature: Array, probs: Array, text: NDArray[Any]) -> Array:
    """What images are clustered by, of length 1: the feature, then the mean text of the predicted classes.

    Args:
        feature: Of the image [d].
        probs: Its prediction [K].
        text: Of each class [K, d].

    >>> joined(np.array([0.0, 3.0]), np.array([1.0, 0.0]), np.array([[4.0, 0.0], [0.0, 1.0]])).tolist()
    [0.0, 0.6, 0.8, 0.0]
    """
    both: Array = np.concatenate([feature, probs @ text])
    return both / max(float(np.linalg.norm(both)), 1e-12)


class Clusters:
    """Spherical k-means of one pass: an image joins the cluster whose mean is most like it.

    As CB has them, there is a cluster for each class and one more for each answer, here up to `MOST`; each
    begins with the next image that comes.

    Attributes:
        sums: Of the images of each cluster.
        sizes: How many these are.
        labels: How many of them have an answer.
    """

    sums: Array
    sizes: Array
    labels: Array

    def __init__(self) -> None:
        self.restore({})

    def score(self, image: Array, classes: int) -> float:
        """Share of all images that are in its cluster, for each answer there, times its cosine to the mean.

        The highest is where the smallest share is labelled, of those without any the largest cluster. The
        image is counted.

        Args:
            image: As `joined` has it.
            classes: How many there are.
        """
        self._make_room(classes + MOST, len(image))
        full = self.begun >= classes + min(MOST, int(self.labels.sum()))
        place, cosine = self._nearest(image) if full else (self.begun, 1.0)
        self.sums[place] += image
        self.sizes[place] += 1
        return max(cosine, 0.0) * float(self.sizes[place] / self.sizes.sum() / (1 + self.labels[place]))

    def answer(self, feature: Array, times: int) -> None:
        """Count an answer of an image, or with −1 one that is taken back.

        By its feature alone: what is predicted of an image has changed since it came.
        """
        place, _ = self._nearest(feature)
        self.labels[place] = max(0.0, self.labels[place] + times)

    @property
    def begun(self) -> int:
        """Clusters that have an image."""
        return int((self.sizes > 0).sum())

    def _make_room(self, rows: int, dim: int) -> None:
        """For all clusters there may ever be of so many classes, so that memory does not grow."""
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

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from where `arrays` was taken."""
        self.sums = np.array(arrays.get("cluster_sums", np.zeros((0, 0))))
        self.sizes = np.array(arrays.get("cluster_sizes", np.zeros(0)))
        self.labels = np.array(arrays.get("cluster_labels", np.zeros(0)))
