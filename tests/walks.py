"""A small stream with late, missing and changing answers, and what two runs of it are compared by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from taps import Learner
from taps.types import PixelArray, Prediction

CLASSES = ("cat", "hot dog", "ship", "tree")
DELAY = 3
Bits = tuple[Any, ...]


def bits(prediction: Prediction) -> Bits:
    """All that was said of an image, but for the time it took."""
    return (
        prediction.id,
        prediction.index,
        prediction.probs.tobytes(),
        prediction.entropy,
        prediction.threshold,
        prediction.ask,
    )


def answer_for(id: int) -> int:
    return (id * 7 + id // 3) % len(CLASSES)


def walk(learner: Learner, picture: Callable[[int], PixelArray], until: int) -> list[Bits]:
    """Predict up to image `until`. An answer comes DELAY images late, and every fifth never does."""
    said = []
    while learner.seen < until:
        said.append(bits(learner.predict_one(picture(learner.seen))))
        late = learner.seen - DELAY
        if late in learner.pending and late % 5:
            learner.learn_one(late, answer_for(late))
    return said


def same_state(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two states hold the same bits."""
    tensors, others = one["tensors"], other["tensors"]
    return (
        one["values"] == other["values"]
        and tensors.keys() == others.keys()
        and all(same_tensor(tensors[name], others[name]) for name in tensors)
    )


def same_tensor(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)
