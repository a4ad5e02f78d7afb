"""The base of methods that tune the text context alone: image features stay fixed, so a step is cheap.

Every image starts from the loaded context. A subclass has the loss, and perhaps another `answer`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from taps.errors import PromptsError
from taps.learning.gradient import Gradient, Point, point_at, to_parameters
from taps.learning.losses import mean_entropy
from taps.learning.optimiser import adamw, fresh_moments
from taps.methods import EncodedImage, FeatureMethod, Snapshot, ViewSettings, setting
from taps.methods.base import prompts_snapshot
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.choose import choose_prompts
from taps.model.prompts.classify import placed, prompt_classifier
from taps.saved import check_plain, whole


class ContextSettings(ViewSettings):
    """TPT's published values.

    Attributes:
        prompts: A text context: "hand" ("a photo of a"), "coop", a directory, a `Prompts`; None for "hand".
        steps: Steps of AdamW for each image.
    """

    prompts: str | Path | Prompts | None = None
    lr: float = setting(5e-3, at_least=0)
    weight_decay: float = setting(0.01, at_least=0)
    steps: int = setting(1, at_least=1)


class ContextTuner(FeatureMethod):
    """A context that takes a few steps for each image and is then forgotten."""

    settings: ContextSettings
    prompts: Prompts

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: ContextSettings, seed: int) -> None:
        self.settings = settings
        self.prompts = choose_prompts(clip, settings.prompts, default="hand")
        if self.prompts.kind != "coop":
            raise PromptsError(
                f"This method tunes a text context alone (coop), but {self.prompts.kind} prompts were given."
            )
        self.classifier = prompt_classifier(clip, classes, self.prompts)
        self.parameters = placed(self.prompts, self.classifier)
        self.anchor = point_at(self.classifier, self.parameters)
        self.text = self.anchor.text
        self.state = self.start()
        self.skipped_updates = 0

    @property
    def stateless(self) -> bool:
        return not self.state

    def loss(self, seen: EncodedImage, text: Tensor) -> Tensor:
        """What a step minimises, at text features [K, d]; here TPT's: H of the confident views' mean."""
        return mean_entropy(self.classifier.logits(seen.features[seen.chosen], text))

    def answer(self, seen: EncodedImage, text: Tensor) -> Tensor:
        """The prediction at the tuned text features: logits [K]."""
        return self.classifier.logits(seen.features[:1], text)[0]

    def adapt(self, seen: EncodedImage) -> Tensor:
        point, self.updated = self.tune(seen, self.anchor)
        self.skipped_updates += not self.updated
        return self.answer(seen, point.text)

    def tune(self, seen: EncodedImage, point: Point) -> tuple[Point, bool]:
        """Take the steps from a point; where they end, and whether they were taken."""
        moments, settings = fresh_moments(point.parameters), self.settings
        for step in range(settings.steps):
            with torch.enable_grad():
                text = point.text.detach().requires_grad_()
                (by_text,) = torch.autograd.grad(self.loss(seen, text), text)
            pulled = point.pull_back(Gradient(by_text, None))
            gradients = to_parameters(self.classifier, point.parameters, pulled)
            parameters, moments, taken = adamw(
                point.parameters, gradients, moments, lr=settings.lr, weight_decay=settings.weight_decay
            )
            if not bool(taken):
                return point, False
            point = point_at(self.classifier, parameters, graph=step + 1 < settings.steps)
        return point, True

    def grow(self, old: Self) -> None:
        super().grow(old)
        self.skipped_updates = old.skipped_updates

    def summary(self) -> dict[str, Any]:
        return {"skipped_updates": self.skipped_updates}

    def snapshot(self) -> Snapshot:
        begun = prompts_snapshot(self.prompts, self.parameters)
        return Snapshot(begun.tensors | self.state, begun.values | self.summary())

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        check_plain(snapshot.values, {"skipped_updates": whole()}, "method")
        self.skipped_updates = snapshot.values["skipped_updates"]
