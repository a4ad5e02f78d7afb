"""MaPLe: learned text tokens in the first blocks, each coupled to vision tokens by a linear map."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.clip import Clip, ClipConfig
from taps.errors import PromptsError
from taps.prompts.base import WORDS, Parameters, Prompts, PromptTokens, prompts_for, word_vectors

TOKENS = 2  # learned ones in each tower


def require_tokens(clip: Clip) -> None:
    """Refuse a model whose image tower has no tokens that prompts could stand beside."""
    if clip.config.stages:
        raise PromptsError(
            f"MaPLe puts prompts into a vision transformer; the image tower of {clip.config.name} is made of "
            "convolutions: use coop."
        )


def initial(clip: Clip, generator: torch.Generator, *, depth: int = 3) -> Prompts:
    """Untrained MaPLe prompts: a start for training; to the image tower they are noise until trained.

    The first two words become learned vectors, the other words stay before the class name.
    """
    require_tokens(clip)
    width, vision = clip.config.text_width, clip.config.vision_width
    words = WORDS.split()
    learned, kept = " ".join(words[:TOKENS]), " ".join(words[TOKENS:])
    bound = width**-0.5  # the usual range of a linear layer
    uniform = torch.rand(depth, vision, width + 1, generator=generator) * 2 * bound - bound
    parameters = {
        "context": word_vectors(clip, learned).cpu(),
        "deep": 0.02 * torch.randn(depth - 1, TOKENS, width, generator=generator),
        "coupling.weight": uniform[..., :width].contiguous(),
        "coupling.bias": uniform[..., width].contiguous(),
    }
    return prompts_for(clip, "maple", parameters, f"{kept} {{}}.", init=WORDS)


def tokens(parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
    text = torch.cat([parameters["context"][None], parameters["deep"]])
    vision = text @ parameters["coupling.weight"].mT + parameters["coupling.bias"][:, None]
    return PromptTokens(text=text, vision=vision)


def shapes(config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
    """Shapes of this family's tensors in a model of these sizes."""
    count, depth = len(parameters.get("context", ())), len(parameters.get("deep", ())) + 1
    return {
        "context": (count, config.text_width),
        "deep": (depth - 1, count, config.text_width),
        "coupling.weight": (depth, config.vision_width, config.text_width),
        "coupling.bias": (depth, config.vision_width),
    }
