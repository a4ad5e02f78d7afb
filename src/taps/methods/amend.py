"""When the past is amended: an answer is taken back, or a class is added while the stream runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch.nn.functional as F

from taps.errors import QueryError, SettingsError
from taps.methods.base import Method, Snapshot
from taps.methods.cocoop_tpt import CocoopTpt
from taps.methods.frozen import Frozen
from taps.methods.tda import Tda
from taps.methods.tuner import Tuner


def take_back(method: Method, id: int) -> None:
    """Let a method forget the answer for one image.

    A method of one's own has `forget(id)` for it. Prompts that carry over from image to image keep the steps
    they took while the answer was believed; from now on it is no part of any step.
    """
    forget = getattr(method, "forget", None)
    if forget is not None:
        forget(id)
    elif isinstance(method, Tuner) and method.memory is not None:
        method.memory.remove(id)
    else:
        raise QueryError(f"{type(method).__name__} cannot take answers back; it has no `forget`.")


def remembers(method: Method, id: int) -> bool:
    """Whether an answer can still be taken back; of `taps`, whether its image is in the buffer."""
    if isinstance(method, Tuner):
        return method.memory is not None and id in method.memory.buffer
    return hasattr(method, "forget")


def hand_over(old: Method, new: Method, classes: int) -> None:
    """Give what a method has learned to one that was built for more classes.

    A method of one's own says `grows = True` where its `restore` takes in a snapshot of fewer classes.

    Args:
        old: The method so far.
        new: The same with the classes added last; nothing has been learned by it.
        classes: How many there are now.
    """
    snapshot = old.snapshot()
    if isinstance(old, Tda):
        snapshot = _wider_votes(snapshot, classes)
    elif not isinstance(old, Frozen | Tuner | CocoopTpt) and not getattr(old, "grows", False):
        raise SettingsError(
            f"{type(old).__name__} cannot take in classes added later; begin a new learner with all of them."
        )
    new.restore(snapshot)


def _wider_votes(snapshot: Snapshot, classes: int) -> Snapshot:
    """TDA's cached images vote neither for nor against a class that was not there."""

    def wider(name: str, value: Any) -> Any:
        return F.pad(value, (0, classes - len(value))) if name.endswith(".value") else value

    return replace(snapshot, tensors={name: wider(name, value) for name, value in snapshot.tensors.items()})
