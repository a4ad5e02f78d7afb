"""One code for numpy's arrays, on the host, and torch's tensors, on a device.

Operators, `sum`, `mean` and `swapaxes` are the same for both; here is what else the head's formulas need.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

AnyArray = Any  # an array of numpy's or a tensor of torch's


def library(array: AnyArray) -> Any:
    """Whose functions (`log`, `where`, `stack`) take such an array."""
    return torch if isinstance(array, Tensor) else np


def at_least(array: AnyArray, least: float) -> AnyArray:
    """Whatever is less, raised to that."""
    return array.clamp_min(least) if isinstance(array, Tensor) else np.maximum(array, least)


def plus_product(array: AnyArray, one: AnyArray, other: AnyArray, out: AnyArray = None) -> AnyArray:
    """Array + one · other: of small tensors a kernel costs more than what it computes, so it is one."""
    if isinstance(array, Tensor):
        return torch.addcmul(array, one, other, out=out)
    return np.add(array, one * other, out=out)


def largest(values: AnyArray, count: int) -> AnyArray:
    """Places of the largest values, in any order."""
    if isinstance(values, Tensor):
        return values.topk(count).indices
    return np.argpartition(-values, count - 1)[:count]


def softmax(logits: AnyArray) -> AnyArray:
    """Probabilities over the last axis."""
    if isinstance(logits, Tensor):
        return torch.softmax(logits, dim=-1)
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)
