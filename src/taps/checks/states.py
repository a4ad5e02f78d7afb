"""What a learner holds: whether two states are equal bit by bit, and how many bytes an object keeps alive."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

# Reached from everywhere, and no part of what an object holds.
SHARED = (type, ModuleType, BuiltinFunctionType)
TENSOR = 256  # about what a tensor takes besides its numbers


def state_tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """All tensors of a state, however deep, by the path to them."""
    found: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            found[str(name)] = value
        elif isinstance(value, dict):
            found |= {f"{name}.{inner}": tensor for inner, tensor in state_tensors(value).items()}
    return found


def same_state(one: Any, other: Any) -> bool:
    """Whether two states hold the same bits; NaN equals NaN, and plain values are compared as JSON."""
    if isinstance(one, dict) and isinstance(other, dict):
        mine, others = ({str(name): value for name, value in each.items()} for each in (one, other))
        return mine.keys() == others.keys() and all(same_state(mine[name], others[name]) for name in mine)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.nan_to_num(), other.nan_to_num())
    first, second = (json.dumps(each, sort_keys=True, default=str) for each in (one, other))
    return first == second


def footprint(root: object) -> int:
    """Bytes of all that can be reached from an object; code, classes and modules are not counted.

    >>> footprint([np.zeros(1000)]) - footprint([np.zeros(0)])
    8000
    """
    seen: set[int] = set()
    storages: set[int] = set()
    waiting, total = [root], 0
    while waiting:
        each = waiting.pop()
        if id(each) not in seen and not issubclass(type(each), SHARED):
            seen.add(id(each))
            total += _own_bytes(each, storages)
            waiting.extend(_referents(each))
    return total


def _own_bytes(each: object, storages: set[int]) -> int:
    """Bytes of one object without what it refers to; memory that tensors share counts once."""
    if isinstance(each, torch.Tensor):
        storage = each.untyped_storage()
        if storage.data_ptr() in storages:
            return TENSOR
        storages.add(storage.data_ptr())
        return TENSOR + int(storage.nbytes())
    if isinstance(each, np.ndarray):
        return 0 if isinstance(each.base, np.ndarray) else int(each.nbytes)
    return sys.getsizeof(each)


def _referents(each: object) -> Iterable[Any]:
    """What an object refers to; of a function only what it closes over, for its globals are everybody's."""
    if isinstance(each, FunctionType):
        return [*(each.__closure__ or ()), each.__defaults__, each.__kwdefaults__]
    if isinstance(each, MethodType):
        return [each.__self__, each.__func__]
    if isinstance(each, torch.Tensor):
        return [each.grad] if each.is_leaf else []
    if isinstance(each, np.ndarray):
        return [each.base] if each.dtype != object else [each.base, *each.flat]
    return gc.get_referents(each)
