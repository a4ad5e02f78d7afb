"""ProDA: a bank of contexts; the text features they give a class are samples of a Gaussian."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.clip import Clip, ClipConfig
from taps.errors import PromptsError
from taps.prompts.base import WORDS, Parameters, Prompts, PromptTokens, prompts_for, word_vectors


def initial(clip: Clip, generator: torch.Generator, *, bank: int = 8) -> Prompts:
    """A bank around hand-written words; the scatter lets its members become different."""
    context = word_vectors(clip, WORDS).cpu()
    scatter = context.std() * torch.randn(bank, *context.shape, generator=generator)
    return prompts_for(clip, "proda", {"context": context + scatter}, "{}.", init=WORDS, bank=bank)


def tokens(parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
    raise PromptsError("ProDA is a bank of contexts and cannot be tuned on an image; use the method proda.")


def members(parameters: Parameters) -> list[PromptTokens]:
    """The tokens of each context of the bank."""
    return [PromptTokens(text=context[None], vision=None) for context in parameters["context"]]


def shapes(config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
    """Shapes of this family's tensors in a model of these sizes."""
    given = parameters["context"].shape if "context" in parameters else (0, 0)
    return {"context": (*given[:2], config.text_width)}


def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean upper bound of the expected cross-entropy under the Gaussian.

    With class weights w ~ N(m, Σ) an image's logit difference to the true class, s_c − s_y, is normal. As the
    logarithm is concave, E ln Σ_c exp(s_c − s_y) ≤ ln Σ_c exp(E[s_c − s_y] + ½ Var[s_c − s_y]). Mean and
    variance are those over the bank, so that no covariance matrix is ever formed.

    Args:
        logits: Of each context of the bank [B, N, K].
        labels: True classes [N].

    >>> logits = torch.randn(1, 3, 4)
    >>> labels = torch.tensor([0, 3, 1])
    >>> torch.allclose(loss(logits, labels), torch.nn.functional.cross_entropy(logits[0], labels))
    True
    """
    differences = logits - logits.gather(2, labels.expand(len(logits), -1)[..., None])
    variance, mean = torch.var_mean(differences, dim=0, correction=0)
    return torch.logsumexp(mean + 0.5 * variance, dim=-1).mean()
