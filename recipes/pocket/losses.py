"""The losses and the schedule that the stages share."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def amp(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def cosine(progress: float, warm: float = 0.03) -> float:
    """Falls from 1 to 0 over the budget, after rising over its first `warm` part."""
    if progress < warm:
        return progress / warm
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - warm) / (1 - warm)))) + 1e-3


def cosine_loss(a: Tensor, b: Tensor) -> Tensor:
    return 1 - F.cosine_similarity(a.float(), b.float(), dim=1).mean()


def cut_loss(logits: Tensor, mass: Tensor, columns: Tensor) -> Tensor:
    """Ranking over cuts of the tree, every name of a cut weighing the same however many images it has.

    `logits` and `mass` are [samples, names]; `columns` is [tasks, names of the task], -1 unused.
    """
    unused = (columns < 0).unsqueeze(0)
    index = columns.clamp_min(0)
    shape = (len(logits), *columns.shape)
    z = logits.index_select(1, index.flatten()).view(shape).masked_fill(unused, -1e4)
    m = mass.index_select(1, index.flatten()).view(shape).masked_fill(unused, 0.0)
    total = m.sum(2, keepdim=True)
    y = torch.where(total > 0.4, m / total.clamp_min(1e-6), torch.zeros_like(m))
    count = y.sum(0, keepdim=True)
    share = y / (count + 4.0)
    present = (count / (count + 4.0)).sum(2).clamp_min(1e-3)
    return -((share * F.log_softmax(z, dim=2)).sum((0, 2)) / present.squeeze(0)).mean()
