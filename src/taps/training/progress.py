"""Unfinished work on disk: one safetensors file, replaced as a whole; a training's after every epoch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taps.errors import StateError
from taps.files import read_tensors, write_tensors
from taps.methods.base import with_prefix
from taps.prompts.base import Parameters


@dataclass(frozen=True)
class TrainingState:
    """All that the next epoch depends on.

    Attributes:
        parameters: The learned tensors.
        velocity: The optimiser's memory.
        epoch: Epochs done.
        history: Mean loss and accuracy of each.
    """

    parameters: Parameters
    velocity: Parameters
    epoch: int
    history: list[dict[str, float]]


def save_progress(path: Path, identity: dict[str, Any], state: TrainingState) -> None:
    tensors = with_prefix("parameters.", state.parameters) | with_prefix("velocity.", state.velocity)
    meta = {"identity": identity, "epoch": state.epoch, "history": state.history}
    write_tensors(path, tensors, meta)


def load_progress(path: Path, identity: dict[str, Any], fresh: TrainingState) -> TrainingState:
    """Read what `save_progress` wrote; `fresh` where there is nothing yet."""
    if not path.exists():
        return fresh
    tensors, meta = read_unfinished(path, identity, "training")
    parts = {
        part: {name: tensors[f"{part}.{name}"].to(value) for name, value in fresh.parameters.items()}
        for part in ("parameters", "velocity")
    }
    return TrainingState(**parts, epoch=meta["epoch"], history=meta["history"])


def read_unfinished(path: Path, identity: dict[str, Any], what: str) -> tuple[Parameters, dict[str, Any]]:
    """What was saved of an interrupted training or pass; a sentence where it is another one's."""
    try:
        tensors, meta = read_tensors(path)
    except Exception as error:
        raise StateError(
            f"{path} is not a readable state of a {what} ({error}); remove it and start anew."
        ) from error
    for name, mine in identity.items():
        if meta["identity"].get(name) != mine:
            raise StateError(
                f"The unfinished {what} in {path} has {name}={meta['identity'].get(name)!r}, "
                f"this one {mine!r}; use the same options, or remove the file to start anew."
            )
    return tensors, meta
