"""How much memory an object holds: all that can be reached from it, tensors and arrays counted once."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

# Reached from everywhere, and no part of what an object holds.
SHARED = (type, ModuleType, BuiltinFunctionType)
TENSOR = 256  # about what a tensor takes besides its numbers


def footprint(root: object) -> int:
    """Bytes that would go with an object; code, classes and modules are not counted.

    >>> footprint([np.zeros(1000)]) - footprint([np.zeros(0)])
    8000
    """
    seen: set[int] = set()
    storages: set[int] = set()
    waiting, total = [root], 0
    while waiting:
        each = waiting.pop()
        if id(each) in seen or issubclass(type(each), SHARED):
            continue
        seen.add(id(each))
        total += own_bytes(each, storages)
        waiting.extend(parts(each))
    return total


def own_bytes(each: object, storages: set[int]) -> int:
    """Bytes of one object without what it refers to; of memory that tensors share, once."""
    if isinstance(each, torch.Tensor):
        storage = each.untyped_storage()
        if storage.data_ptr() in storages:
            return TENSOR
        storages.add(storage.data_ptr())
        return TENSOR + int(storage.nbytes())
    if isinstance(each, np.ndarray):
        return 0 if isinstance(each.base, np.ndarray) else int(each.nbytes)
    return sys.getsizeof(each)


def parts(each: object) -> Iterable[Any]:
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
