"""Whether two states of a learner are equal, bit by bit."""

from __future__ import annotations

import json
from typing import Any

import torch


def state_tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """All tensors of a state, however deep, by the path to them."""
    found: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            found[str(name)] = value
        elif isinstance(value, dict):
            found |= {f"{name}.{inner}": tensor for inner, tensor in state_tensors(value).items()}
    return found


def same_state(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two states hold the same bits."""
    mine, others = state_tensors(one), state_tensors(other)
    first, second = (json.dumps(without_tensors(each), sort_keys=True, default=str) for each in (one, other))
    return (
        first == second
        and mine.keys() == others.keys()
        and all(
            tensor.dtype == others[name].dtype and torch.equal(tensor.nan_to_num(), others[name].nan_to_num())
            for name, tensor in mine.items()
        )
    )


def without_tensors(state: dict[str, Any]) -> dict[str, Any]:
    return {
        name: without_tensors(value) if isinstance(value, dict) else value
        for name, value in state.items()
        if not isinstance(value, torch.Tensor)
    }
