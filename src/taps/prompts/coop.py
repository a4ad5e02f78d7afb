"""CoOp: a learned context before the class name, the same for every class and image."""

from __future__ import annotations

from torch import Tensor

from taps.clip import Clip, ClipConfig
from taps.prompts.base import Parameters, Prompts, PromptTokens, word_vectors


def initial(clip: Clip, words: str = "a photo of a", suffix: str = "{}.") -> Prompts:
    """The context that starts as hand-written words: before any update it is exactly zero-shot CLIP."""
    return Prompts(
        kind="coop",
        parameters={"context": word_vectors(clip, words)},
        suffix=suffix,
        base=clip.config.name,
        base_fingerprint=clip.fingerprint,
        record={"init": words},
    )


def tokens(parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
    return PromptTokens(text=parameters["context"][None], vision=None)


def shapes(config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
    """What the tensors of this family look like in a model of these sizes."""
    return {"context": (len(parameters.get("context", ())), config.text_width)}
