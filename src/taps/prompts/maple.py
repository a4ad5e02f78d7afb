"""MaPLe: learned text tokens in the first blocks, each coupled to vision tokens by a linear map."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.clip import Clip, ClipConfig
from taps.errors import PromptsError
from taps.prompts.base import Parameters, Prompts, PromptTokens, word_vectors


def require_tokens(clip: Clip) -> None:
    """Refuse a model whose image tower has no tokens that prompts could stand beside."""
    if clip.config.stages:
        raise PromptsError(
            f"MaPLe puts prompts into a vision transformer; the image tower of {clip.config.name} is made of "
            "convolutions: use coop."
        )


def initial(
    clip: Clip, generator: torch.Generator, *, words: str = "a photo of a", tokens: int = 2, depth: int = 3
) -> Prompts:
    """Untrained MaPLe prompts: a start for training; to the image tower they are noise until trained.

    The first `tokens` words become learned vectors, the other words stay before the class name.
    """
    require_tokens(clip)
    width, vision = clip.config.text_width, clip.config.vision_width
    kept = " ".join(words.split()[tokens:])
    bound = width**-0.5  # the usual range of a linear layer
    uniform = torch.rand(depth, vision, width + 1, generator=generator) * 2 * bound - bound
    deep = 0.02 * torch.randn(depth - 1, tokens, width, generator=generator)
    return Prompts(
        kind="maple",
        parameters={
            "context": word_vectors(clip, " ".join(words.split()[:tokens])).cpu(),
            "deep": deep,
            "coupling.weight": uniform[..., :width].contiguous(),
            "coupling.bias": uniform[..., width].contiguous(),
        },
        suffix=f"{kept} {{}}.".strip(),
        base=clip.config.name,
        base_fingerprint=clip.fingerprint,
        record={"init": words},
    )


def tokens(parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
    text = torch.cat([parameters["context"][None], parameters["deep"]])
    vision = text @ parameters["coupling.weight"].mT + parameters["coupling.bias"][:, None]
    return PromptTokens(text=text, vision=vision)


def shapes(config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
    """What the tensors of this family look like in a model of these sizes."""
    count, depth = len(parameters.get("context", ())), len(parameters.get("deep", ())) + 1
    return {
        "context": (count, config.text_width),
        "deep": (depth - 1, count, config.text_width),
        "coupling.weight": (depth, config.vision_width, config.text_width),
        "coupling.bias": (depth, config.vision_width),
    }
