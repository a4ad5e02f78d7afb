"""Attention and the hidden layer alone on a GPU, in every way there is to compute them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from taps.learning.fast.capture import CudaCapture
from taps.model.clip.ops import linear_gelu_kernel, plain_self_attention, quick_gelu, self_attention_kernel


def attention_times(batch: int, tokens: int, heads: int, size: int, repeats: int = 10) -> dict[str, Any]:
    """Milliseconds of attention over packed queries, keys and values in bfloat16: torch's ways and ours."""
    packed = torch.randn(batch, tokens, 3 * heads * size, device="cuda", dtype=torch.bfloat16)
    upper = torch.randn(batch, tokens, heads * size, device="cuda", dtype=torch.bfloat16)
    backends = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
    ways: dict[str, tuple[Any, Callable[[Tensor, int], Tensor] | None]] = {
        backend.name: (sdpa_kernel(backend), plain_self_attention) for backend in backends
    }
    ours = self_attention_kernel(tokens, packed.shape[2], heads, packed.dtype)
    ways["OURS"] = nullcontext(), ours
    rows: dict[str, Any] = {}
    for name, (chosen, attend) in ways.items():
        if attend is None:
            rows[name] = "its kernel cannot be used here"
            continue

        def both(attend: Callable[[Tensor, int], Tensor] = attend) -> None:
            leaf = packed.detach().requires_grad_()
            torch.autograd.grad(attend(leaf, heads), leaf, upper)

        def forward(attend: Callable[[Tensor, int], Tensor] = attend) -> None:
            with torch.no_grad():
                attend(packed, heads)

        try:
            with chosen:
                rows[name] = {
                    "forward": _captured_time(forward, repeats),
                    "both": _captured_time(both, repeats),
                }
        except RuntimeError as error:  # a backend that this device or build has not got
            rows[name] = str(error)[:200]
    return rows


def hidden_times(rows: int, width: int, repeats: int = 10) -> dict[str, float | None]:
    """Milliseconds of a hidden layer in bfloat16: the product alone, QuickGELU behind it, and both in one."""
    x = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    layer = nn.Linear(width, 4 * width, device="cuda", dtype=torch.bfloat16).requires_grad_(False)
    fused = linear_gelu_kernel(4 * width, width, x.dtype)
    ways: dict[str, Callable[[], object] | None] = {
        "product": lambda: layer(x),
        "apart": lambda: quick_gelu(layer(x)),
        "fused": None if fused is None else lambda: fused(x, layer.weight, layer.bias),
    }
    return {name: None if way is None else _captured_time(way, repeats) for name, way in ways.items()}


def _captured_time(work: Callable[[], object], repeats: int, calls: int = 10) -> float:
    """As part of a captured graph: launched one by one, kernels as short as these wait for the host."""
    graphs = CudaCapture(torch.device("cuda"))

    def often() -> None:
        for _ in range(calls):
            work()

    return replay_time(graphs.capture(often), repeats) / calls


def replay_time(stage: Any, repeats: int) -> float:
    """Median milliseconds of a captured graph."""
    return _time(stage.replay, repeats)


def _time(work: Callable[[], object], repeats: int) -> float:
    times: list[float] = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]
