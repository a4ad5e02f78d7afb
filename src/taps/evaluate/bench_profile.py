"""Where the time of our step goes on a GPU: by recorded stage, and by kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from taps.fast.recorded import ContinualStep, EpisodicStep
from taps.methods.tuner import Tuner


def stage_times(tuner: Tuner, repeats: int = 20) -> dict[str, float]:
    """Median milliseconds of each recording's replay; empty where nothing is recorded."""
    recorded = tuner.engine.recorded
    if isinstance(recorded, EpisodicStep):
        stages = {"score": recorded.score, "finish": recorded.finish}
    elif isinstance(recorded, ContinualStep):
        stages = {"score": recorded.score, "learn": recorded.learn, "text": recorded.text}
        stages |= {"look": recorded.look, "predict": recorded.predict}
        if recorded.chunks is not None:
            stages["chunk"] = recorded.chunks.recording
    else:
        return {}
    return {name: _replay_time(stage, repeats) for name, stage in stages.items()}


def _replay_time(stage: Any, repeats: int) -> float:
    times: list[float] = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        stage.replay()
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
