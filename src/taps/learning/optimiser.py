"""AdamW as a pure function of tensors: no hidden state, no synchronisation with the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from taps.model.prompts.families import Parameters

EPS = 1e-8  # keeps AdamW's division finite


@dataclass(frozen=True)
class Moments:
    """AdamW's state: running means of the gradient and of its square, and the number of steps."""

    first: Parameters
    second: Parameters
    steps: int | Tensor  # a tensor where steps are captured and replayed on the device


def fresh_moments(parameters: Parameters) -> Moments:
    first, second = ({name: torch.zeros_like(value) for name, value in parameters.items()} for _ in range(2))
    return Moments(first, second, 0)


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
    eps: float = EPS,
) -> tuple[Parameters, Moments, Tensor]:
    """One AdamW step. Where a gradient is not finite, no tensor changes.

    Returns:
        The new parameters, the new moments, and a boolean tensor: whether the step was taken. Where it
        was not, the caller keeps its old moments: the new ones count a step that was never made.
    """
    taken = all_finite(gradients)
    steps = moments.steps + 1
    corrections = _corrections(steps, betas, taken.device)
    updated: Parameters = {}
    new = Moments({}, {}, steps)
    for name, value in parameters.items():
        gradient = gradients[name].to(value.dtype)
        updated[name], new.first[name], new.second[name] = _moved(
            value,
            gradient,
            moments.first[name],
            moments.second[name],
            corrections,
            taken,
            lr=lr,
            weight_decay=weight_decay,
            betas=betas,
            eps=eps,
        )
    return updated, new, taken


def adamw_from_rest(
    parameters: Parameters, gradients: Parameters, *, lr: float, weight_decay: float
) -> tuple[Parameters, Tensor]:
    """First AdamW steps from the same parameters, one for each of several gradients in rows.

    After bias correction the running means of a first step are the gradient itself and its square. Returns
    the new parameters in rows, and whether each step was taken (see `adamw`).
    """
    finite = [torch.isfinite(each).flatten(1).all(dim=1) for each in gradients.values()]
    taken = torch.stack(finite).all(dim=0)
    updated: Parameters = {}
    for name, value in parameters.items():
        gradient = gradients[name].to(value.dtype)
        direction = gradient / (gradient.abs() + EPS)
        moved = torch.add(value * (1 - lr * weight_decay), direction, alpha=-lr)
        updated[name] = torch.where(taken.view(-1, *[1] * value.ndim), moved, value)
    return updated, taken


def _moved(
    value: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    corrections: Tensor,
    taken: Tensor,
    *,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """New value and moments of one tensor; nothing changes where `taken` is false.

    `corrections` [2] divide the running means: those of few steps are too small.
    """
    mean = betas[0] * first + (1 - betas[0]) * gradient
    square = betas[1] * second + (1 - betas[1]) * gradient * gradient
    direction = (mean / corrections[0]) / ((square / corrections[1]).sqrt() + eps)
    moved = value * (1 - lr * weight_decay) - lr * direction
    changes = ((moved, value), (mean, first), (square, second))
    new_value, new_first, new_second = (torch.where(taken, new, old) for new, old in changes)
    return new_value, new_first, new_second


def _corrections(steps: int | Tensor, betas: tuple[float, float], device: torch.device) -> Tensor:
    if isinstance(steps, Tensor):
        return torch.stack([1 - beta**steps for beta in betas])
    values = (1 - beta**steps for beta in betas)  # filled in on the device: a graph cannot wait for the host
    return torch.stack([torch.full((), value, dtype=torch.float64, device=device) for value in values])
