"""ProDA: a bank of contexts; the text features they give a class are samples of a Gaussian."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from taps.errors import PromptsError
from taps.model.clip import Clip, ClipConfig
from taps.model.prompts.base import WORDS, Prompts, prompts_for, word_vectors
from taps.model.prompts.families import Family, Parameters, PromptTokens, Recipe, family

if TYPE_CHECKING:
    from taps.model.prompts.classifier import Classifier


@family("proda")
class Proda(Family):
    recipe = Recipe(epochs=10, batch=64, lr=2e-3, crops=5)
    noise = True

    def initial(self, clip: Clip, generator: torch.Generator, *, bank: int = 8) -> Prompts:
        """A bank around hand-written words; the scatter lets its members become different."""
        context = word_vectors(clip, WORDS).cpu()
        scatter = context.std() * torch.randn(bank, *context.shape, generator=generator)
        return prompts_for(clip, self.name, {"context": context + scatter}, "{}.", init=WORDS, bank=bank)

    def tokens(self, parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
        raise PromptsError(
            "ProDA is a bank of contexts and cannot be tuned on an image; use the method proda."
        )

    def shapes(self, config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
        given = parameters["context"].shape if "context" in parameters else (0, 0)
        return {"context": (*given[:2], config.text_width)}

    def features(
        self, classifier: Classifier, parameters: Parameters, feature: Tensor | None = None
    ) -> tuple[Tensor, None]:
        """The mean of the Gaussian: the average over the bank."""
        return torch.stack(bank_texts(classifier, parameters)).mean(dim=0), None

    def losses(
        self, classifier: Classifier, parameters: Parameters, images: Tensor, labels: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        bank = torch.stack([classifier.logits(images, each) for each in bank_texts(classifier, parameters)])
        yield upper_bound(bank, labels), bank.mean(dim=0)


def bank_texts(classifier: Classifier, parameters: Parameters) -> list[Tensor]:
    """Text features of the classes [K, d] by each context of the bank."""
    return [classifier.text(context[None]) for context in parameters["context"]]


def upper_bound(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean upper bound of the expected cross-entropy under the Gaussian.

    With class weights w ~ N(m, Σ) an image's logit difference to the true class, s_c − s_y, is normal. As the
    logarithm is concave, E ln Σ_c exp(s_c − s_y) ≤ ln Σ_c exp(E[s_c − s_y] + ½ Var[s_c − s_y]). Mean and
    variance are those over the bank, so that no covariance matrix is ever formed.

    Args:
        logits: Of each context of the bank [B, N, K].
        labels: True classes [N].

    >>> logits = torch.randn(1, 3, 4)
    >>> labels = torch.tensor([0, 3, 1])
    >>> torch.allclose(upper_bound(logits, labels), torch.nn.functional.cross_entropy(logits[0], labels))
    True
    """
    differences = logits - logits.gather(2, labels.expand(len(logits), -1)[..., None])
    variance, mean = torch.var_mean(differences, dim=0, correction=0)
    return torch.logsumexp(mean + 0.5 * variance, dim=-1).mean()
