"""What active test-time methods share: a step with every answer, on labelled images and the last others."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from taps.clip import Clip
from taps.methods import EncodedImage, MethodOutput, ReplayItem, State, setting
from taps.methods.labelled import BufferSettings, LabelledImages


@dataclass(frozen=True)
class RecentSettings(BufferSettings):
    """How far an answer moves the weights.

    Attributes:
        batch: How many of the last images without an answer a step looks at.
        steps: Steps for each answer.
        lr: Learning rate of SGD with Nesterov's momentum, 0.9.
    """

    batch: int = setting(64, at_least=1)
    steps: int = setting(3, at_least=1)
    lr: float = setting(1e-2, above=0)


class RecentImagesMethod(LabelledImages):
    """A subclass says what is learned (`weights`), what it says of images (`classify`), and its gradient.

    An answer that is taken back is learned from no more; steps that were taken because of it stay.
    """

    settings: RecentSettings

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: RecentSettings, seed: int) -> None:
        super().__init__(clip, classes, settings, seed)
        self.seed = seed

    def weights(self) -> Tensor:
        """Before any answer."""
        raise NotImplementedError

    def classify(self, weights: Tensor, features: Tensor) -> Tensor:
        """Logits of images by their features [n, K]."""
        raise NotImplementedError

    def gradient(self, weights: Tensor, generator: torch.Generator) -> Tensor:
        """Of the loss on the labelled images and the last others."""
        raise NotImplementedError

    def start(self) -> State:
        weights = self.weights()
        return super().start() | {
            "weights": weights,
            "momentum": torch.zeros_like(weights),
            "recent": self.text.new_zeros(self.settings.batch, self.text.shape[1]),
            "images": self.text.new_zeros((), dtype=torch.int64),
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        return self.classify(self.state["weights"], seen.features[:1])[0]

    def predict(self, views: Tensor, ahead: Tensor | None = None) -> MethodOutput:
        output = super().predict(views, ahead)
        if output.feature is not None:
            self.state["recent"][int(self.state["images"]) % self.settings.batch] = output.feature
            self.state["images"] += 1
        return output

    def others(self) -> Tensor:
        """Features of the last images that have no answer [m, d]."""
        rows = self.state["recent"]
        return rows[rows.any(dim=1)]

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        super().learn(id, label, item)
        rows = self.state["recent"]
        rows[(rows == item.feature.to(rows)).all(dim=1)] = 0  # it has an answer now
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + int(self.state["answers"]))
        for _ in range(self.settings.steps):
            self.step(self.gradient(self.state["weights"], generator))

    def step(self, gradient: Tensor) -> None:
        """One step of SGD with Nesterov's momentum; none where the gradient is not finite."""
        if bool(torch.isfinite(gradient).all()):
            speed = 0.9 * self.state["momentum"] + gradient
            moved = self.state["weights"] - self.settings.lr * (gradient + 0.9 * speed)
            self.state |= {"momentum": speed, "weights": moved}


def gradient_of(loss: Tensor, weights: Tensor) -> Tensor:
    """Zeros where the loss does not depend on the weights."""
    (found,) = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    return found
