"""CoCoOp: a learned context that a small net shifts for each image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.clip import Clip, ClipConfig
from taps.errors import PromptsError
from taps.prompts.base import WORDS, Parameters, Prompts, PromptTokens, prompts_for, word_vectors

NARROWER = 16  # the net's middle layer is this many times narrower than the image feature


def initial(clip: Clip, generator: torch.Generator) -> Prompts:
    """The context that starts as hand-written words, and a net that starts by shifting nothing."""
    embed, width = clip.config.embed_dim, clip.config.text_width
    hidden = max(1, embed // NARROWER)
    bound = embed**-0.5  # the usual range of a linear layer
    uniform = torch.rand(hidden, embed + 1, generator=generator) * 2 * bound - bound
    parameters = {
        "context": word_vectors(clip, WORDS).cpu(),
        "net.down.weight": uniform[:, :embed].contiguous(),
        "net.down.bias": uniform[:, embed].contiguous(),
        "net.up.weight": torch.zeros(width, hidden),
        "net.up.bias": torch.zeros(width),
    }
    return prompts_for(clip, "cocoop", parameters, "{}.", init=WORDS)


def tokens(parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
    """The context of one image, from its normalised feature [d]."""
    if feature is None:
        raise PromptsError(
            "CoCoOp prompts depend on the image; use the method cocoop, or cocoop+tpt to tune them."
        )
    feature = feature.to(parameters["context"].dtype)
    hidden = F.relu(F.linear(feature, parameters["net.down.weight"], parameters["net.down.bias"]))
    shift = F.linear(hidden, parameters["net.up.weight"], parameters["net.up.bias"])
    return PromptTokens(text=(parameters["context"] + shift)[None], vision=None)


def shapes(config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
    """Shapes of this family's tensors in a model of these sizes."""
    hidden = len(parameters.get("net.down.bias", ()))
    return {
        "context": (len(parameters.get("context", ())), config.text_width),
        "net.down.weight": (hidden, config.embed_dim),
        "net.down.bias": (hidden,),
        "net.up.weight": (config.text_width, hidden),
        "net.up.bias": (config.text_width,),
    }
