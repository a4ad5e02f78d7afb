"""Where the time of our step goes on a GPU: by recorded stage, and by kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from taps.fast.recorded import ContinualStep, EpisodicStep
from taps.methods.tuner import Tuner


def stage_times(tuner: Tuner, repeats: int = 20) -> dict[str, float]:
    """Median milliseconds of each recording's replay; empty where nothing is recorded."""
    recorded = tuner.engine.recorded
    if isinstance(recorded, EpisodicStep):
        stages = {"score": recorded.score, "finish": recorded.finish}
    elif isinstance(recorded, ContinualStep):
        stages = {"score": recorded.score, **recorded.update.stages, "text": recorded.text}
        stages |= {"look": recorded.look, "predict": recorded.predict}
        if recorded.chunks is not None:
            stages["chunk"] = recorded.chunks.recording
    else:
        return {}
    return {name: _replay_time(stage, repeats) for name, stage in stages.items()}


def attention_times(batch: int, tokens: int, heads: int, size: int, repeats: int = 20) -> dict[str, Any]:
    """Milliseconds of torch's attentions over packed queries, keys and values in bfloat16, by backend."""
    packed = torch.randn(batch, tokens, 3 * heads * size, device="cuda", dtype=torch.bfloat16)
    packed.requires_grad_()
    upper = torch.randn(batch, heads, tokens, size, device="cuda", dtype=torch.bfloat16)

    def forward() -> Tensor:
        parts = packed.chunk(3, dim=-1)
        q, k, v = (part.view(batch, tokens, heads, size).transpose(1, 2) for part in parts)
        return F.scaled_dot_product_attention(q, k, v)

    rows: dict[str, Any] = {}
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        try:
            with sdpa_kernel(backend):
                forward()
                rows[backend.name] = {
                    "forward": _time(forward, repeats),
                    "both": _time(lambda: torch.autograd.grad(forward(), packed, upper), repeats),
                }
        except RuntimeError as error:  # a backend that this device or build has not got
            rows[backend.name] = str(error)[:200]
    return rows


def _replay_time(stage: Any, repeats: int) -> float:
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


def kernel_times(tuner: Tuner, views: Tensor, steps: int = 5, top: int = 25) -> list[dict[str, Any]]:
    """The kernels that took most time: name, calls and milliseconds per step."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        for _ in range(steps):
            tuner.predict(views)
        torch.cuda.synchronize()
    rows = [
        {"kernel": row.key[:160], "calls": row.count / steps, "ms": row.self_device_time_total / 1e3 / steps}
        for row in trace.key_averages()
        if row.self_device_time_total > 0
    ]
    return sorted(rows, key=lambda row: -row["ms"])[:top]
