"""CoOp: a learned context before the class name, the same for every class and image."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.errors import PromptsError
from taps.model.clip import Clip, ClipConfig
from taps.model.prompts.base import WORDS, Prompts, prompts_for, word_vectors
from taps.model.prompts.families import Family, Parameters, PromptTokens, Recipe, family, take


@family("coop")
class Coop(Family):
    recipe = Recipe(epochs=50, batch=32, lr=2e-3, crops=5)

    def initial(self, clip: Clip, generator: torch.Generator | None = None, words: str = WORDS) -> Prompts:
        """The context that starts as hand-written words: before any update it is exactly zero-shot CLIP."""
        return prompts_for(clip, self.name, {"context": word_vectors(clip, words)}, "{}.", init=words)

    def tokens(self, parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
        return PromptTokens(text=parameters["context"][None], vision=None)

    def shapes(self, config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
        return {"context": (len(parameters.get("context", ())), config.text_width)}

    def read(self, state: dict[str, Tensor], position: str | None) -> Parameters:
        context = take(state, "ctx")
        if context.ndim != 2:
            raise PromptsError(
                "The checkpoint has a context for each class; only one for all can be imported."
            )
        if position is None:
            raise PromptsError(
                "A CoOp checkpoint does not say where the class name stood; give the position it was trained "
                "with (CLASS_TOKEN_POSITION), 'end' for a name after the context."
            )
        return {"context": context}
