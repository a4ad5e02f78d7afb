"""The base of methods whose weights take steps of gradient descent with every answer."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from taps.learning.optimiser import EPS, Moments, adamw
from taps.methods import EncodedImage, MethodOutput, ReplayItem, State, setting
from taps.model.clip import Clip
from taps.rivals.labelled import BufferSettings, LabelledImages


class StepwiseSettings(BufferSettings):
    """For `steps` of AdamW with each answer, each on all labelled images."""

    steps: int = setting(10, at_least=1)
    lr: float = setting(1e-3, above=0)
    weight_decay: float = setting(0.0, at_least=0)


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


class LearnedWeights(LabelledImages):
    """A subclass says what is learned (`weights`) and how it classifies (`classify`)."""

    def weights(self) -> Tensor:
        """The weights before any answer."""
        raise NotImplementedError

    def classify(self, weights: Tensor, features: Tensor) -> Tensor:
        """Logits of images by their features [n, K]."""
        raise NotImplementedError

    def adapt(self, seen: EncodedImage) -> Tensor:
        return self.classify(self.state["weights"], seen.features[:1])[0]


class Stepwise(LearnedWeights):
    """AdamW on a loss of all labelled images.

    Where an answer is taken back or a class is added, the answers left are learned again from the start, in
    their order: the weights are those of a stream without the one, or with the other from the first image on.
    """

    settings: StepwiseSettings
    eps = EPS  # of AdamW

    def loss(self, weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """What the steps minimise."""
        raise NotImplementedError

    def start(self) -> State:
        return super().start() | self.fresh()

    def fresh(self) -> State:
        """Weights before any answer, AdamW's moments, and how many steps were taken."""
        weights = self.weights()
        return {
            "weights": weights,
            "first": torch.zeros_like(weights),
            "second": torch.zeros_like(weights),
            "steps": self.text.new_zeros((), dtype=torch.int64),
        }

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        super().learn(id, label, item)
        self.take_steps(*self.held())

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        super().forget(id, label, item)
        self.learn_again()

    def grow(self, old: Self) -> None:
        super().grow(old)
        self.learn_again()

    def learn_again(self) -> None:
        """Learn all answers that are held, from the start."""
        self.state |= self.fresh()
        features, labels = self.held()
        for known in range(1, len(labels) + 1):
            self.take_steps(features[:known], labels[:known])

    def take_steps(self, features: Tensor, labels: Tensor) -> None:
        """The steps for one answer, the last of these labels."""
        for _ in range(self.settings.steps):
            with torch.enable_grad():
                weights = self.state["weights"].detach().requires_grad_()
                (gradient,) = torch.autograd.grad(self.loss(weights, features, labels), weights)
            self.step(gradient)

    def step(self, gradient: Tensor) -> None:
        """One step of AdamW; none where the gradient is not finite."""
        state, settings = self.state, self.settings
        moments = Moments({"w": state["first"]}, {"w": state["second"]}, int(state["steps"]))
        lr, decay, weights = settings.lr, settings.weight_decay, {"w": state["weights"]}
        moved, after, taken = adamw(
            weights, {"w": gradient}, moments, lr=lr, weight_decay=decay, eps=self.eps
        )
        if bool(taken):
            state["steps"] += 1
            state |= {"weights": moved["w"], "first": after.first["w"], "second": after.second["w"]}


class RecentImagesMethod(LearnedWeights):
    """SGD on a gradient from the labelled images and the last others (active test-time adaptation).

    An answer that is taken back is learned from no more; steps that were taken because of it stay.
    """

    settings: RecentSettings

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: RecentSettings, seed: int) -> None:
        super().__init__(clip, classes, settings, seed)
        self.seed = seed

    def gradient(self, weights: Tensor, generator: torch.Generator) -> Tensor:
        """Gradient of the loss on the labelled images and the last others."""
        raise NotImplementedError

    def start(self) -> State:
        weights = self.weights()
        return super().start() | {
            "weights": weights,
            "momentum": torch.zeros_like(weights),
            "recent": self.text.new_zeros(self.settings.batch, self.text.shape[1]),
            "images": self.text.new_zeros((), dtype=torch.int64),
        }

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
