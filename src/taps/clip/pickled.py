"""What `torch.save` wrote, read without executing anything in it."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from torch.optim import lr_scheduler
from torch.serialization import safe_globals


class Inert:
    """Stands where a pickle names a class whose objects nobody reads: takes any arguments, does nothing."""

    def __new__(cls, *given: object) -> Inert:
        return super().__new__(cls)

    def __init__(self, *given: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class PlainDict:
    """Stands for `defaultdict`: its entries are read, its factory is not."""

    def __new__(cls, *given: object) -> dict[Any, Any]:  # type: ignore[misc]
        return {}


SCHEDULERS = [
    name for name, value in vars(lr_scheduler).items() if inspect.isclass(value) and name.endswith("LR")
]
# Trainers save their optimiser and scheduler beside the weights: torch's own, and those of Dassl, on which
# the codes of CoOp, CoCoOp and MaPLe are built. A best score may be a number of numpy's.
INERT = {
    "torch.optim.lr_scheduler": SCHEDULERS,
    "torch.optim.sgd": ["SGD"],
    "torch.optim.adam": ["Adam"],
    "torch.optim.adamw": ["AdamW"],
    "torch.optim.rmsprop": ["RMSprop"],
    "dassl.optim.radam": ["RAdam", "PlainRAdam"],
    "dassl.optim.lr_scheduler": ["ConstantWarmupScheduler", "LinearWarmupScheduler"],
    "numpy": ["dtype"],
    "numpy.core.multiarray": ["scalar"],
    "numpy._core.multiarray": ["scalar"],
    "builtins": ["dict"],
}


def read_pickled(path: Path, *, mapped: bool = False) -> Any:
    """The content of a file of tensors; optimisers and schedulers beside them come back empty.

    Torch's restricted reader builds tensors and plain containers alone and refuses any other name in the
    file, save those that stand-ins are given for here. No class or function the file names is ever called.
    Where the file is `mapped` its tensors are read when they are used, and the file must stay as it is.
    """
    stand_ins: list[Any] = [_named(PlainDict, "collections", "defaultdict")]
    stand_ins += [_named(Inert, module, name) for module, names in INERT.items() for name in names]
    try:
        with safe_globals(stand_ins):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        # Torch goes on to advise loading it all the same.
        code = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError(f"it holds {code[1]}" if code else "it is no file of tensors") from None


def _named(kind: type, module: str, name: str) -> type:
    """A class that the reader takes for the one of that name."""
    return type(name, (kind,), {"__module__": module})
