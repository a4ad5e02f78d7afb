"""Heads that take some steps of gradient descent with every answer, from where the last ones ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from taps.adapt.optimiser import Moments, adamw
from taps.methods import EncodedImage, ReplayItem, State, setting
from taps.methods.labelled import BufferSettings, LabelledImages

EPS = 1e-4  # of Adam, in ProLIP's code; a first gradient near 0 is no reason for a whole step


@dataclass(frozen=True)
class StepwiseSettings(BufferSettings):
    """How far an answer moves the weights.

    Attributes:
        steps: Steps for each answer, each on all labelled images.
        lr: Learning rate.
        weight_decay: Of AdamW.
    """

    steps: int = setting(10, at_least=1)
    lr: float = setting(1e-3, above=0)
    weight_decay: float = setting(0.0, at_least=0)


class Stepwise(LabelledImages):
    """A subclass says what is learned (`weights`), what it says of images (`classify`), and the loss.

    Where an answer is taken back or a class is added, the answers left are learned again from the start, in
    their order: the weights are those of a stream without the one, or with the other from the first image on.
    """

    settings: StepwiseSettings

    def weights(self) -> Tensor:
        """Before any answer."""
        raise NotImplementedError

    def classify(self, weights: Tensor, features: Tensor) -> Tensor:
        """Logits of images by their features [n, K]."""
        raise NotImplementedError

    def loss(self, weights: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """What the steps lessen."""
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

    def adapt(self, seen: EncodedImage) -> Tensor:
        return self.classify(self.state["weights"], seen.features[:1])[0]

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
        """All answers that are held, from the start."""
        self.state |= self.fresh()
        features, labels = self.held()
        for known in range(1, len(labels) + 1):
            self.take_steps(features[:known], labels[:known])

    def take_steps(self, features: Tensor, labels: Tensor) -> None:
        """What one answer does; the last of these labels is the new one."""
        for _ in range(self.settings.steps):
            with torch.enable_grad():
                weights = self.state["weights"].detach().requires_grad_()
                (gradient,) = torch.autograd.grad(self.loss(weights, features, labels), weights)
            self.step(gradient)

    def step(self, gradient: Tensor) -> None:
        """One step of AdamW; none where the gradient is not finite."""
        moments = Moments({"w": self.state["first"]}, {"w": self.state["second"]}, int(self.state["steps"]))
        moved, after, taken = adamw(
            {"w": self.state["weights"]},
            {"w": gradient},
            moments,
            lr=self.settings.lr,
            weight_decay=self.settings.weight_decay,
            eps=EPS,
        )
        if bool(taken):
            self.state["steps"] += 1
            self.state |= {"weights": moved["w"], "first": after.first["w"], "second": after.second["w"]}
