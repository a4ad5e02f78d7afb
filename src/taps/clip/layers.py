"""Parts that every tower is built of, left unfilled when made: the weights come from a file."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.clip.ops import ACTIVATION, attend, hidden_layer


class Unfilled:
    """Left unfilled when made: the weights come from a file, and random ones would cost seconds."""

    def reset_parameters(self) -> None:
        pass


class Linear(Unfilled, nn.Linear): ...


class Embedding(Unfilled, nn.Embedding): ...


class Conv(Unfilled, nn.Conv2d): ...


class Attention(nn.Module):
    """The weights of multi-head attention, in the layout of OpenAI's checkpoints."""

    def __init__(self, width: int, heads: int, inner_eps: float | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.ln = None if inner_eps is None else nn.LayerNorm(width, eps=inner_eps)
        self.out_proj = Linear(width, width)

    def project(self, x: Tensor) -> Tensor:
        """Queries, keys and values side by side [..., 3 · width]."""
        return F.linear(x, self.in_proj_weight, self.in_proj_bias)

    def of(self, queries: Tensor, x: Tensor) -> Tensor:
        """Some queries [batch, few, width] over all tokens [batch, tokens, width], before `out_proj`."""
        return attend(queries, x, self.in_proj_weight, self.in_proj_bias, self.heads)

    def out(self, seen: Tensor) -> Tensor:
        return self.out_proj(seen if self.ln is None else self.ln(seen))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    def __init__(self, width: int, hidden: int, activation: str) -> None:
        super().__init__()
        self.c_fc = Linear(width, hidden)
        self.c_proj = Linear(hidden, width)
        self.activation = ACTIVATION[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(hidden_layer(x, self.c_fc, self.activation))  # type: ignore[no-any-return]


class GatedMlp(nn.Module):
    """EVA-02's: one half is let through by the other (SwiGLU), then normalised."""

    def __init__(self, width: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.c_gate = Linear(width, hidden)
        self.c_fc = Linear(width, hidden)
        self.ln = nn.LayerNorm(hidden, eps=eps)
        self.c_proj = Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.ln(F.silu(self.c_gate(x)) * self.c_fc(x)))  # type: ignore[no-any-return]
