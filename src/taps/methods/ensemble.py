"""Many views, no gradient: the mean of the confident ones (it keeps everyone honest), or their vote."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from taps.adapt.losses import mean_entropy, mean_log_probs, select_confident
from taps.clip import Clip
from taps.methods.frozen import Frozen, Rule
from taps.methods.settings import ViewSettings
from taps.prompts import Prompts
from taps.prompts.choose import choose_prompts


@dataclass(frozen=True)
class EnsembleSettings(ViewSettings):
    """The views that TPT keeps.

    Attributes:
        prompts: Trained prompts to read the views with, a directory or a `Prompts`; None for the template.
    """

    prompts: str | Path | Prompts | None = None


@dataclass(frozen=True)
class ZeroSettings(EnsembleSettings):
    """ZERO's published values: it keeps more views."""

    fraction: float = 0.3


def confident_mean(logits: Tensor, *, fraction: float) -> tuple[Tensor, Tensor]:
    """Mean probability of the confident views, and its entropy."""
    kept = logits[select_confident(logits, fraction)]
    return mean_log_probs(kept).exp(), mean_entropy(kept)


def confident_vote(logits: Tensor, *, fraction: float) -> tuple[Tensor, Tensor]:
    """Share of the confident views' votes: their mean probability at temperature zero.

    One vote more is spread as the mean probability is: it decides ties and can decide nothing else.

    >>> import torch
    >>> probs, _ = confident_vote(torch.tensor([[3.0, 0.0], [0.0, 2.0]]), fraction=1.0)
    >>> int(probs.argmax())
    0
    """
    kept = logits[select_confident(logits, fraction)]
    votes = F.one_hot(kept.argmax(dim=-1), logits.shape[-1]).to(logits.dtype)
    return (votes.sum(dim=0) + mean_log_probs(kept).exp()) / (len(kept) + 1), mean_entropy(kept)


def build(clip: Clip, classes: tuple[str, ...], settings: EnsembleSettings, seed: int) -> Frozen:
    return _read(clip, classes, settings, partial(confident_mean, fraction=settings.fraction))


def build_vote(clip: Clip, classes: tuple[str, ...], settings: EnsembleSettings, seed: int) -> Frozen:
    return _read(clip, classes, settings, partial(confident_vote, fraction=settings.fraction))


def _read(clip: Clip, classes: tuple[str, ...], settings: EnsembleSettings, rule: Rule) -> Frozen:
    prompts = None if settings.prompts is None else choose_prompts(clip, settings.prompts, default="hand")
    return Frozen(clip, classes, rule, template=settings.template, prompts=prompts)
