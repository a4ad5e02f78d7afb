"""AdamW as a pure function of tensors: no hidden state, no synchronisation with the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from taps.prompts.base import Parameters


@dataclass(frozen=True)
class Moments:
    """AdamW's memory: running mean and uncentred variance of the gradient, and how many steps made them."""

    first: Parameters
    second: Parameters
    steps: int | Tensor  # a tensor where steps are recorded and replayed on the device


def fresh_moments(parameters: Parameters) -> Moments:
    return Moments(
        {name: torch.zeros_like(value) for name, value in parameters.items()},
        {name: torch.zeros_like(value) for name, value in parameters.items()},
        0,
    )


def all_finite(tensors: Parameters) -> Tensor:
    """One boolean on the device."""
    return torch.stack([torch.isfinite(value).all() for value in tensors.values()]).all()


def adamw(
    parameters: Parameters,
    gradients: Parameters,
    moments: Moments,
    *,
    lr: float,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[Parameters, Moments, Tensor]:
    """One AdamW step. When any gradient is not finite, no tensor changes.

    Returns:
        The new parameters, the new moments, and a boolean tensor: whether the step was taken. Where it
        was not, the caller goes on with the moments it had: the new ones count a step that was never made.
    """
    taken = all_finite(gradients)
    steps = moments.steps + 1
    updated: Parameters = {}
    first: Parameters = {}
    second: Parameters = {}
    for name, value in parameters.items():
        gradient = gradients[name].to(value.dtype)
        mean = betas[0] * moments.first[name] + (1 - betas[0]) * gradient
        square = betas[1] * moments.second[name] + (1 - betas[1]) * gradient * gradient
        direction = (mean / (1 - betas[0] ** steps)) / ((square / (1 - betas[1] ** steps)).sqrt() + eps)
        moved = value * (1 - lr * weight_decay) - lr * direction
        updated[name] = torch.where(taken, moved, value)
        first[name] = torch.where(taken, mean, moments.first[name])
        second[name] = torch.where(taken, square, moments.second[name])
    return updated, Moments(first, second, steps), taken
