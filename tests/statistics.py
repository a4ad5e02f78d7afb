"""Source statistics that no images have."""

from __future__ import annotations

import torch

from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.source import SourceStats


def made_up_stats(clip: Clip, prompts: Prompts, classes: tuple[str, ...] = ()) -> SourceStats:
    """Of two blocks, for prompts with two vision tokens; not representable in half precision."""
    generator = torch.Generator().manual_seed(3)
    shape = (2, clip.config.image_tokens + 2, clip.config.vision_width)
    return SourceStats(
        layers=(0, 1),
        count=8,
        mean=torch.randn(shape, generator=generator),
        variance=torch.rand(shape, generator=generator),
        classes=classes,
        class_counts=torch.full((len(classes),), 2),
        class_means=torch.randn(len(classes), *shape, generator=generator),
        class_variances=torch.rand(len(classes), *shape, generator=generator),
        model=clip.fingerprint,
        prompts=prompts.fingerprint,
    )
