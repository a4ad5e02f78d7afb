"""CoCoOp: a learned context that a small net shifts for each image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.errors import PromptsError
from taps.model.clip import Clip, ClipConfig
from taps.model.prompts.base import WORDS, Prompts, prompts_for, word_vectors
from taps.model.prompts.families import Family, Parameters, PromptTokens, Recipe, family, take

if TYPE_CHECKING:
    from taps.model.prompts.classifier import Classifier

NARROWER = 16  # the net's middle layer is this many times narrower than the image feature
LAYERS = {"net.down": "meta_net.linear1", "net.up": "meta_net.linear2"}  # in public checkpoints


@family("cocoop")
class Cocoop(Family):
    # Published with batches of 1. Larger ones reach the same accuracy in a fraction of the time.
    recipe = Recipe(epochs=10, batch=8, lr=2e-3, crops=5)
    by_image = True

    def initial(self, clip: Clip, generator: torch.Generator) -> Prompts:
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
        return prompts_for(clip, self.name, parameters, "{}.", init=WORDS)

    def tokens(self, parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
        """The context of one image, from its normalised feature [d]."""
        if feature is None:
            raise PromptsError(
                "CoCoOp prompts depend on the image; use the method cocoop, or cocoop+tpt to tune them."
            )
        feature = feature.to(parameters["context"].dtype)
        hidden = F.relu(F.linear(feature, parameters["net.down.weight"], parameters["net.down.bias"]))
        shift = F.linear(hidden, parameters["net.up.weight"], parameters["net.up.bias"])
        return PromptTokens(text=(parameters["context"] + shift)[None], vision=None)

    def shapes(self, config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
        hidden = len(parameters.get("net.down.bias", ()))
        return {
            "context": (len(parameters.get("context", ())), config.text_width),
            "net.down.weight": (hidden, config.embed_dim),
            "net.down.bias": (hidden,),
            "net.up.weight": (config.text_width, hidden),
            "net.up.bias": (config.text_width,),
        }

    def losses(
        self, classifier: Classifier, parameters: Parameters, images: Tensor, labels: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Every image has texts of its own. One at a time: memory holds one text graph, not a batch."""
        for feature, label in zip(images, labels, strict=True):
            text, _ = self.features(classifier, parameters, feature)
            logits = classifier.logits(feature[None], text)
            yield F.cross_entropy(logits, label[None]) / len(labels), logits

    def read(self, state: dict[str, Tensor], position: str | None) -> Parameters:
        net = {
            f"{own}.{part}": take(state, f"{theirs}.{part}")
            for own, theirs in LAYERS.items()
            for part in ("weight", "bias")
        }
        return {"context": take(state, "ctx"), **net}
