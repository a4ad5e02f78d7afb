"""CoOp: a learned context before the class name, the same for every class and image."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.clip import Clip, ClipConfig
from taps.prompts.base import WORDS, Parameters, Prompts, PromptTokens, prompts_for, word_vectors


def initial(clip: Clip, generator: torch.Generator | None = None, words: str = WORDS) -> Prompts:
    """The context that starts as hand-written words: before any update it is exactly zero-shot CLIP."""
    return prompts_for(clip, "coop", {"context": word_vectors(clip, words)}, "{}.", init=words)


def tokens(parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
    return PromptTokens(text=parameters["context"][None], vision=None)


def shapes(config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
    """Shapes of this family's tensors in a model of these sizes."""
    return {"context": (len(parameters.get("context", ())), config.text_width)}
