"""TT-RAA (Fan et al., ICCV 2025): a Gaussian of sure images for each class, compared in three ways.

The arithmetic is that of the authors' code, whose covariance of a class is a multiple of the unit matrix and
one number in every entry: the squared distance of an image to the mean where the paper has the outer product.
Two numbers hold it, and its inverse is closed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from taps.methods import EncodedImage, FeatureMethod, State, TextSettings, method, setting
from taps.methods.features import EMPTY, closeness

VARIANCE = 0.01  # of a class's first image, in every direction
TEMPERATURE = 0.2  # of the class distributions that are compared
TINY = 1e-8


class TtRaaSettings(TextSettings):
    """TT-RAA's values for DTD, here for all data sets. The scale of the logits is the model's (theirs: 100).

    Attributes:
        weight: α, of each of the three comparisons.
        sharpness: β, how fast the first fades with distance.
        step: η, how far a sure image moves the mean, entropy and covariance of its class.
    """

    weight: float = setting(6.0, at_least=0)
    sharpness: float = setting(3.0, at_least=0)
    step: float = setting(0.711, above=0, at_most=1)


@method("tt_raa", TtRaaSettings)
class TtRaa(FeatureMethod):
    settings: TtRaaSettings

    def start(self) -> State:
        classes = len(self.text)
        return {
            "means": torch.zeros_like(self.text),
            "entropies": self.text.new_full((classes,), EMPTY),
            "spread": self.text.new_full((classes,), VARIANCE),  # of the unit matrix in the covariance
            "entry": self.text.new_zeros(classes),  # what every entry of the covariance has beside that
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        self.take(int(seen.logits[0].argmax()), seen.entropy, seen.feature)
        held = (self.state["entropies"] < EMPTY).nonzero()[:, 0]
        means, logits = self.state["means"][held], seen.logits[0].clone()
        cosines = means @ seen.feature
        votes = closeness(means, seen.feature, self.settings.sharpness)
        votes = votes + rescaled(*self.density(held, seen.feature), cosines) / 3
        votes = votes - rescaled(self.divergence(means, seen.feature), 1.0, cosines)
        logits[held] += self.settings.weight * votes
        return logits

    def take(self, label: int, entropy: float, feature: Tensor) -> None:
        """Move a class's Gaussian to an image that is surer than it; the first image is its mean."""
        means, entropies, step = self.state["means"], self.state["entropies"], self.settings.step
        if float(entropies[label]) >= EMPTY:
            means[label], entropies[label] = feature, entropy
        elif entropy < float(entropies[label]):
            means[label] += step * (feature - means[label])
            entropies[label] += step * (entropy - entropies[label])
            apart = (feature - means[label]).square().sum()
            self.state["spread"][label] *= 1 - step
            self.state["entry"][label] += step * (apart - self.state["entry"][label])

    def density(self, held: Tensor, feature: Tensor) -> tuple[Tensor, float]:
        """(xᵀΛμ − ½ μᵀΛμ) · a of the held classes, and a: the covariance aI + b11ᵀ is their mean."""
        means = self.state["means"][held]
        spread = max(float(self.state["spread"][held].mean()), torch.finfo(means.dtype).tiny)
        entry = float(self.state["entry"][held].mean())
        shared = entry / (spread + entry * len(feature))
        sums = means.sum(dim=1)
        projected = means @ feature - shared * sums * feature.sum()
        return projected - 0.5 * (means.square().sum(dim=1) - shared * sums.square()), spread

    def divergence(self, means: Tensor, feature: Tensor) -> Tensor:
        """KL(image ‖ mean) of their distributions over the class texts [held]."""
        own = torch.log_softmax(self.text @ feature / TEMPERATURE, dim=-1)
        theirs = torch.log_softmax(means @ self.text.T / TEMPERATURE, dim=-1)
        return (own.exp() * (own - theirs)).sum(dim=-1)


def rescaled(values: Tensor, unit: float, like: Tensor) -> Tensor:
    """Values moved and stretched to the range of others; `unit` is what they were multiplied with."""
    share = (values - values.min()) / (values.max() - values.min() + TINY * unit)
    return share * (like.max() - like.min()) + like.min()
