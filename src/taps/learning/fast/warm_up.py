"""Warm-up: compile and verify a model's kernels in threads while class names are read and encoded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial

import torch

from taps.model.clip import Clip, ClipConfig, ops
from taps.model.images.tensor import views_kernel
from taps.model.kernels.verify import try_ahead
from taps.model.prompts.base import Prompts, prompt_tokens

HALVES = torch.float16, torch.bfloat16


def try_tower_kernels(clip: Clip) -> None:
    """Start to try the kernels that images and texts need, once for each kind of model.

    Any other kernel is tried where it is first used.
    """
    if clip.device.type == "cuda" and clip.dtype != torch.float64:
        _try_tower_kernels(clip.config, clip.device, clip.dtype)


def try_step_kernels(clip: Clip, prompts: Prompts) -> None:
    """The same for the kernels that only steps of these prompts need."""
    if clip.device.type == "cuda" and clip.dtype != torch.float64:
        vision = prompt_tokens(prompts.kind, prompts.parameters).vision
        _try_step_kernels(clip.config, clip.device, clip.dtype, 0 if vision is None else vision.shape[-2])


@functools.cache
def _try_tower_kernels(config: ClipConfig, device: torch.device, dtype: torch.dtype) -> None:
    text_width, width = config.text_width, config.vision_width
    looks: list[Callable[[], object]] = []
    if config.causal:
        looks.append(partial(ops.text_attention_kernel, 3 * text_width, config.text_heads, dtype))
    looks.append(partial(ops.norm_kernel, text_width, dtype))
    if config.activation == "quick_gelu":
        looks += [ops.quick_gelu_kernels, partial(ops.linear_gelu_kernel, config.vision_mlp, width, dtype)]
    if not config.stages:
        looks.append(partial(ops.norm_kernel, width, dtype))
    looks.append(partial(views_kernel, config.image_size, device))
    try_ahead(looks, device)


@functools.cache
def _try_step_kernels(config: ClipConfig, device: torch.device, dtype: torch.dtype, prompts: int) -> None:
    if prompts and dtype in HALVES:
        sizes = config.image_tokens + prompts, 3 * config.vision_width, config.vision_heads
        try_ahead([partial(ops.self_attention_kernel, *sizes, dtype)], device)
