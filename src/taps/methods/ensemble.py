"""View ensembles without a gradient: the mean of the confident views, or their vote (ZERO)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from taps.learning.losses import mean_entropy, mean_log_probs, select_confident
from taps.methods import ViewSettings, method, setting
from taps.methods.frozen import Frozen
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.choose import choose_prompts


class EnsembleSettings(ViewSettings):
    """The views that TPT keeps; `prompts` are trained ones, a directory or a `Prompts`, or None for texts."""

    prompts: str | Path | Prompts | None = None


class ZeroSettings(EnsembleSettings):
    """ZERO's published values: it keeps more views.

    Attributes:
        ties: What decides between classes of equally many votes: "views", the first of the views from number
            ⌊fraction · views⌋ on, in the order they were drawn in, that names one of them, as ZERO's own code
            has it; or "mean", the mean probability of the confident views.
    """

    fraction: float = 0.3
    ties: str = setting("views", choices=("views", "mean"))


def confident_mean(logits: Tensor, *, fraction: float, tsallis: float = 1.0) -> tuple[Tensor, Tensor]:
    """Mean probability of the confident views, and its entropy."""
    kept = logits[select_confident(logits, fraction, tsallis)]
    return mean_log_probs(kept).exp(), mean_entropy(kept)


def confident_vote(
    logits: Tensor, *, fraction: float, ties: str = "views", tsallis: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Share of the confident views' votes: their mean probability at temperature zero.

    One vote more decides ties and nothing else. It goes to the tied class that a further view predicts; where
    there is no tie, no such view, or `ties` is "mean", it is spread as the mean probability.

    >>> import torch
    >>> logits = torch.tensor([[3.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
    >>> [int(confident_vote(logits, fraction=0.7, ties=ties)[0].argmax()) for ties in ("views", "mean")]
    [1, 0]
    """
    kept = logits[select_confident(logits, fraction, tsallis)]
    votes = F.one_hot(kept.argmax(dim=-1), logits.shape[-1]).to(logits.dtype).sum(dim=0)
    further = logits[len(kept) :].argmax(dim=-1)
    tied = votes == votes.max()
    named = further[tied[further]]
    if ties == "views" and tied.sum() > 1 and len(named):
        more = F.one_hot(named[0], len(votes)).to(votes.dtype)
    else:
        more = mean_log_probs(kept).exp()
    return (votes + more) / (len(kept) + 1), mean_entropy(kept)


def given_prompts(clip: Clip, settings: EnsembleSettings) -> Prompts | None:
    return None if settings.prompts is None else choose_prompts(clip, settings.prompts, default="hand")


@method("view_ensemble", EnsembleSettings, prompts="optional", baseline=3)
def build(clip: Clip, classes: tuple[str, ...], settings: EnsembleSettings, seed: int) -> Frozen:
    """Mean probability of the confident views; no gradient."""
    rule = partial(confident_mean, fraction=settings.fraction, tsallis=settings.tsallis)
    return Frozen(clip, classes, rule, settings, prompts=given_prompts(clip, settings))


@method("zero", ZeroSettings, prompts="optional")
def build_vote(clip: Clip, classes: tuple[str, ...], settings: ZeroSettings, seed: int) -> Frozen:
    """ZERO (Farina et al., NeurIPS 2024): the vote of the confident views; no gradient."""
    rule = partial(confident_vote, fraction=settings.fraction, ties=settings.ties, tsallis=settings.tsallis)
    return Frozen(clip, classes, rule, settings, prompts=given_prompts(clip, settings))
