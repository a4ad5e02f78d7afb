"""The base of methods that need a batch: the last images of the stream, the present one among them."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.methods import EncodedImage, FeatureMethod, State, TextSettings, setting

PASSES = 10
NEAR = 3  # neighbours of an image in the window


class WindowSettings(TextSettings):
    """`window` is how many of the last images are a batch, the present one included."""

    window: int = setting(128, at_least=1)


class WindowMethod(FeatureMethod):
    """A subclass assigns the images of a batch to classes (`assign`); the present one's row is used."""

    settings: WindowSettings

    def start(self) -> State:
        return {
            "window": self.text.new_zeros(self.settings.window, self.text.shape[1]),
            "seen": self.text.new_zeros((), dtype=torch.int64),
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        place = int(self.state["seen"]) % self.settings.window
        self.state["window"][place] = seen.feature
        self.state["seen"] += 1
        features = self.state["window"][: int(self.state["seen"])]
        return self.assign(features, torch.log_softmax(self.logits(features), dim=-1))[place]

    def assign(self, features: Tensor, zero_shot: Tensor) -> Tensor:
        """Logits of each image of a batch [n, K], from features [n, d] and log-probabilities [n, K]."""
        raise NotImplementedError


def neighbours(features: Tensor, near: int = NEAR) -> Tensor:
    """Edges of a batch [n, n]: cosines of an image with its nearest others, the mean of both sides / `near`.

    Rows have a sum of about 1. Negative cosines are no edges.
    """
    cosines = features @ features.T
    cosines.fill_diagonal_(-1)
    found = cosines.topk(min(near, len(cosines)), dim=1)
    edges = torch.zeros_like(cosines).scatter(1, found.indices, found.values.clamp_min(0))
    return (edges + edges.T) / (2 * near)
