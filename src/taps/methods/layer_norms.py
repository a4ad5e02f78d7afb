"""What methods share that tune the layer norms of the vision tower: weights of their own, a step, a state.

The frozen model is shared by others, so the norms' weights and biases are copied; everything else is not.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from taps.adapt.losses import mean_entropy, select_confident
from taps.adapt.optimiser import Moments, adamw, fresh_moments
from taps.clip import Clip
from taps.methods.base import Method, MethodOutput, Snapshot
from taps.methods.ranges import setting
from taps.methods.settings import ViewSettings, reset_period, reset_setting
from taps.prompts.base import Parameters
from taps.prompts.classify import text_classifier


@dataclass(frozen=True)
class NormSettings(ViewSettings):
    """For methods that tune the vision tower's layer norms on the views of each image.

    Attributes:
        fraction: Share of most confident views that is learned from; the batch these methods are made for has
            no bad views, so all of them unless given.
        lr: Learning rate.
        weight_decay: Of AdamW; 0 makes it Adam.
        reset: When the layer norms go back to the model's own: "sample", "never", or "every:k".
    """

    fraction: float = 1.0
    lr: float = setting(1e-3, at_least=0)
    weight_decay: float = setting(0.0, at_least=0)
    reset: str = reset_setting("sample")


class NormTuner(Method):
    """Layer norms that take one step for each image; a subclass has the loss of the chosen views' logits."""

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: NormSettings, seed: int) -> None:
        self.settings = settings
        self.classifier = text_classifier(clip, classes, settings.template)
        self.period = reset_period(settings.reset)
        with torch.no_grad():
            self.text = self.classifier.text(None)
        self.tower, self.start = own_norms(clip.visual, self.classifier.dtype)
        self.parameters, self.moments = self.start, fresh_moments(self.start)
        self.seen = self.skipped_updates = 0

    def loss(self, logits: Tensor) -> Tensor:
        """What is minimised, from the logits of the chosen views [n, K]."""
        raise NotImplementedError

    def predict(self, views: Tensor) -> MethodOutput:
        if self.period and self.seen % self.period == 0:
            self.parameters, self.moments = self.start, fresh_moments(self.start)
        self.seen += 1
        images = self.classifier.clip.preprocess(views)
        entropy, taken = self.adapt(images)
        self.skipped_updates += not taken
        with torch.no_grad():
            probs = torch.softmax(self.logits(self.parameters, images[:1])[0], dim=-1)
        return MethodOutput(probs, entropy, updated=taken)

    def adapt(self, images: Tensor) -> tuple[float, bool]:
        """One step; H of the chosen views' mean probability before it, and whether it was taken."""
        gradients, kept = self.gradients(self.parameters, images)
        moved, moments, taken = adamw(
            self.parameters,
            gradients,
            self.moments,
            lr=self.settings.lr,
            weight_decay=self.settings.weight_decay,
        )
        if bool(taken):
            self.parameters, self.moments = moved, moments
        return float(mean_entropy(kept)), bool(taken)

    def gradients(self, parameters: Parameters, images: Tensor) -> tuple[Parameters, Tensor]:
        """Of the loss at the given weights; and the logits of the chosen views."""
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        with torch.enable_grad():
            logits = self.logits(leaves, images)
            kept = logits[select_confident(logits, self.settings.fraction)]
            found = torch.autograd.grad(self.loss(kept), list(leaves.values()))
        return dict(zip(leaves, found, strict=True)), kept.detach()

    def logits(self, parameters: Parameters, images: Tensor) -> Tensor:
        weights = {name: value.to(images.dtype) for name, value in parameters.items()}
        features, _ = functional_call(self.tower, weights, (images, None))
        return self.classifier.logits(F.normalize(features.to(self.classifier.dtype), dim=-1), self.text)

    def grow(self, old: Self) -> None:
        self.restore(old.snapshot())

    def summary(self) -> dict[str, Any]:
        return {"skipped_updates": self.skipped_updates}

    def snapshot(self) -> Snapshot:
        values: dict[str, Any] = {"seen": self.seen, "skipped_updates": self.skipped_updates}
        if self.period == 1:  # nothing carries over
            return Snapshot({}, values)
        parts = {"parameters": self.parameters, "first": self.moments.first, "second": self.moments.second}
        tensors = {f"{part}.{name}": value for part, all in parts.items() for name, value in all.items()}
        return Snapshot(tensors, values | {"steps": self.moments.steps})

    def restore(self, snapshot: Snapshot) -> None:
        values = snapshot.values
        self.seen, self.skipped_updates = values["seen"], values["skipped_updates"]
        if self.period == 1:
            return
        device = self.classifier.clip.device
        parameters, first, second = (
            {name: snapshot.tensors[f"{part}.{name}"].to(device) for name in self.start}
            for part in ("parameters", "first", "second")
        )
        self.parameters, self.moments = parameters, Moments(first, second, values["steps"])


def own_norms(tower: nn.Module, dtype: torch.dtype) -> tuple[nn.Module, Parameters]:
    """The tower with layer norms of its own, all other weights shared; and those norms' weights by name."""
    norms = {name for name, module in tower.named_modules() if isinstance(module, nn.LayerNorm)}
    own = {name: value for name, value in tower.named_parameters() if name.rpartition(".")[0] in norms}
    shared = {id(value): value for name, value in tower.named_parameters() if name not in own}
    return copy.deepcopy(tower, shared), {name: value.detach().to(dtype) for name, value in own.items()}
