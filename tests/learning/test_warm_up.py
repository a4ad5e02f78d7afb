"""Which kernels are tried at warm-up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from taps import load_clip
from taps.learning.fast import warm_up
from taps.model.clip import Clip
from taps.model.clip.config import ClipConfig, builtin_config
from taps.model.prompts.coop import Coop
from taps.model.prompts.maple import Maple

DEVICE = torch.device("cuda", 0)


class OnCuda:
    """As much of a model on a GPU as is looked at."""

    device, dtype = DEVICE, torch.bfloat16

    def __init__(self, config: ClipConfig) -> None:
        self.config = config


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Name and arguments of what is looked for."""
    found: list[tuple[Any, ...]] = []

    def note(looks: list[Callable[[], object]], device: torch.device) -> None:
        assert device == DEVICE
        for look in looks:
            kernel = cast("Callable[..., object]", getattr(look, "func", look))
            found.append((kernel.__name__, *getattr(look, "args", ())))

    monkeypatch.setattr(warm_up, "try_ahead", note)
    for cached in (warm_up._try_tower_kernels, warm_up._try_step_kernels):
        cached.cache_clear()
    return found


def test_the_kernels_of_a_model_are_tried_once_in_its_sizes(tried: list[tuple[Any, ...]]) -> None:
    half = torch.bfloat16
    for _ in range(2):
        warm_up.try_tower_kernels(
            cast(Clip, OnCuda(replace(builtin_config("ViT-B-16"), activation="quick_gelu")))
        )
    assert sorted(tried, key=str) == [
        ("linear_gelu_kernel", 3072, 768, half),
        ("norm_kernel", 512, half),
        ("norm_kernel", 768, half),
        ("quick_gelu_kernels",),
        ("text_attention_kernel", 1536, 8, half),
        ("views_kernel", 224, DEVICE),
    ]


def test_attention_is_tried_with_the_prompts_that_images_get(
    tried: list[tuple[Any, ...]], tiny: Clip
) -> None:
    clip = cast(Clip, OnCuda(tiny.config))
    warm_up.try_step_kernels(clip, Coop().initial(tiny))
    assert not tried
    prompts = Maple().initial(tiny, torch.Generator().manual_seed(0))
    warm_up.try_step_kernels(clip, prompts)
    tokens = tiny.config.image_tokens + len(prompts.parameters["context"])
    sizes = tokens, 3 * tiny.config.vision_width, tiny.config.vision_heads
    assert tried == [("self_attention_kernel", *sizes, torch.bfloat16)]


def test_on_a_cpu_nothing_is_tried(tried: list[tuple[Any, ...]]) -> None:
    clip = load_clip("tiny", device="cpu")
    warm_up.try_tower_kernels(clip)
    warm_up.try_step_kernels(clip, Coop().initial(clip))
    assert not tried
