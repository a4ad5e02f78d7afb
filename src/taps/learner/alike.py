"""Similar images, to be labelled together."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch

from taps.learner import Learner

ALIKE = 0.5  # least cosine of features without their mean: of two images of a stream it is about 0


def nearest(learner: Learner, id: int, others: Collection[int], most: int) -> list[int]:
    """The `most` images of `others` that are most similar to image `id`, the nearest first."""
    kept = {**learner.desk.queries.pending, **learner.desk.queries.recent}
    if id not in kept:
        return []
    ids = np.array(list(kept))
    features = torch.stack([item.feature.float() for item in kept.values()]).cpu().numpy()
    centred = features - features.mean(axis=0)
    units = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    cosines = units @ units[ids == id][0]
    cosines[~np.isin(ids, list(others)) | (ids == id)] = -1.0
    best = (-cosines).argsort(kind="stable")[:most]
    return [int(ids[place]) for place in best if cosines[place] >= ALIKE]
