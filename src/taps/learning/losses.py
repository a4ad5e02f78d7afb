"""One pure function per equation of the paper. Logits in, scalars or indices out; nats, log space."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# PromptAlign's published form: half mean, half variance; three blocks counted, weight 100.
PROMPTALIGN_SCALE = 100 / 3


def entropies(logits: Tensor) -> Tensor:
    """Entropy of each row's softmax [N, K] → [N]."""
    logs = F.log_softmax(logits, dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)


def confident_count(views: int, fraction: float) -> int:
    """How many views are kept: truncated as TPT does, but never none.

    >>> confident_count(64, 0.1)
    6
    """
    return max(1, int(fraction * views))


def tsallis_entropies(logits: Tensor, q: float) -> Tensor:
    """Tsallis entropy (1 − Σ p^q) / (q − 1) of each row's softmax [N, K] → [N]; Shannon's at q = 1.

    >>> round(float(tsallis_entropies(torch.zeros(1, 4), 2.0)), 4)
    0.75
    """
    if q == 1:
        return entropies(logits)
    return (1 - (q * F.log_softmax(logits, dim=-1)).exp().sum(dim=-1)) / (q - 1)


def select_confident(logits: Tensor, fraction: float, q: float = 1.0) -> Tensor:
    """Indices of the views of lowest Tsallis entropy (step 3 of the algorithm); ties go to the earlier view.

    Of one image [N, K], or of many [..., N, K]; so do the functions below. `fraction` is the share kept.
    """
    kept = confident_count(logits.shape[-2], fraction)
    return torch.sort(tsallis_entropies(logits, q), stable=True).indices[..., :kept]


def mean_log_probs(logits: Tensor) -> Tensor:
    """Logarithm of the rows' mean probability [N, K] → [K]."""
    return torch.logsumexp(F.log_softmax(logits, dim=-1), dim=-2) - math.log(logits.shape[-2])


def mean_entropy(logits: Tensor) -> Tensor:
    """H_t: entropy of the mean probability of the given views (eq. of L_entropy).

    >>> round(float(mean_entropy(torch.zeros(3, 4))), 4)  # ln 4
    1.3863
    """
    # A class no view gives any mass has log-probability −inf and adds nothing: 0 · (−inf) must not be NaN.
    logs = mean_log_probs(logits).clamp_min(torch.finfo(logits.dtype).min)
    return -(logs.exp() * logs).sum(dim=-1)


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """−ln p(label) of each row."""
    return F.cross_entropy(logits, labels, reduction="none")


def moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance over the views, per token and channel [N, T, C] → [T, C] twice."""
    return features.mean(dim=0), features.var(dim=0, correction=0)


def distance(features: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """‖μ − μ̂‖₁ + ‖σ² − σ̂²‖₁ over the tokens the features have; the statistics may have more of them."""
    mu, sigma2 = moments(features)
    return (mu - mean[: len(mu)]).abs().sum() + (sigma2 - variance[: len(mu)]).abs().sum()


def align_promptalign(
    features: Sequence[Tensor], means: Sequence[Tensor], variances: Sequence[Tensor]
) -> Tensor:
    """Alignment as PromptAlign computes it: mean absolute differences, half each, times 100/3."""
    total = features[0].new_zeros(())
    for feature, mean, variance in zip(features, means, variances, strict=True):
        total = total + 0.5 * distance(feature, mean, variance) / mean.numel()
    return PROMPTALIGN_SCALE * total


def align_paper(features: Sequence[Tensor], means: Sequence[Tensor], variances: Sequence[Tensor]) -> Tensor:
    """Alignment as the paper prints it: (1/L) Σ_l ‖μ − μ̂_l‖₁ + ‖σ² − σ̂²_l‖₁."""
    total = features[0].new_zeros(())
    for feature, mean, variance in zip(features, means, variances, strict=True):
        total = total + distance(feature, mean, variance)
    return total / len(features)


ALIGN = {"promptalign": align_promptalign, "paper": align_paper}
