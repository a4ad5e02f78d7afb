"""The base of methods that tune the vision tower, with one step for each image.

The frozen model is shared with other learners: what is tuned is copied, the rest is not.
"""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from taps.errors import SettingsError
from taps.learning.losses import mean_entropy, select_confident
from taps.learning.optimiser import Moments, adamw, fresh_moments
from taps.methods import Method, MethodOutput, Snapshot, ViewSettings, reset_setting, setting
from taps.methods.base import tuned_from, tuned_tensors
from taps.methods.settings import reset_period
from taps.model.clip import Clip
from taps.model.prompts.classify import text_classifier
from taps.model.prompts.families import Parameters
from taps.saved import check_like, check_plain, maybe, real, whole


class TowerSettings(ViewSettings):
    """For methods that tune the vision tower on the views of each image.

    Attributes:
        fraction: Share of most confident views that is learned from: all of them, unless given.
        weight_decay: Of AdamW, which with 0 is Adam; or of SGD.
        reset: When the tower is reset to the model's own: "sample", "never", or "every:k".
    """

    fraction: float = 1.0
    lr: float = setting(1e-3, at_least=0)
    weight_decay: float = setting(0.0, at_least=0)
    reset: str = reset_setting("sample")


class TowerTuner(Method):
    """Weights of the vision tower, by default its layer norms, take one step for each image.

    A subclass has the loss of the chosen views' logits, and names plain values of its state in `saved`.
    """

    settings: TowerSettings
    saved: tuple[str, ...] = ("seen", "skipped_updates")

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: TowerSettings, seed: int) -> None:
        if clip.config.stages:
            raise SettingsError(
                f"This method tunes layer norms of a vision transformer; the image tower of "
                f"{clip.config.name} is made of convolutions."
            )
        self.settings = settings
        self.classifier = text_classifier(clip, classes, settings.template, settings.texts)
        self.period = reset_period(settings.reset)
        with torch.no_grad():
            self.text = self.classifier.text(None)
        self.start = self.tuned(clip.visual, seed)
        self.tower = private_copy(clip.visual)
        self.parameters, self.moments = self.start, fresh_moments(self.start)
        self.seen = self.skipped_updates = 0

    def tuned(self, tower: nn.Module, seed: int) -> Parameters:
        """The tuned weights before the first step."""
        return {name: value.detach().to(self.classifier.dtype) for name, value in norms(tower).items()}

    def weights(self, parameters: Parameters) -> Parameters:
        """The tower's weights that the tuned ones take the place of, by name."""
        return parameters

    def loss(self, logits: Tensor) -> Tensor:
        """What a step minimises, from the logits of the chosen views [n, K]."""
        raise NotImplementedError

    def predict(self, views: Tensor) -> MethodOutput:
        if self.period and self.seen % self.period == 0:
            self.start_afresh()
        self.seen += 1
        images = self.classifier.clip.preprocess(views)
        entropy, taken = self.adapt(images)
        self.skipped_updates += not taken
        with torch.no_grad():
            probs = torch.softmax(self.logits(self.parameters, images[:1])[0], dim=-1)
        return MethodOutput(probs, entropy, updated=taken)

    def start_afresh(self) -> None:
        self.parameters, self.moments = self.start, fresh_moments(self.start)

    def adapt(self, images: Tensor) -> tuple[float, bool]:
        """One step; H of the chosen views' mean probability before it, and whether it was taken."""
        gradients, logits, chosen = self.gradients(self.parameters, images, self.settings.fraction)
        return float(mean_entropy(logits[chosen])), self.adamw_step(gradients)

    def adamw_step(self, gradients: Parameters) -> bool:
        """One step of AdamW; whether it was taken: not where a gradient is not finite."""
        lr, decay = self.settings.lr, self.settings.weight_decay
        moved, moments, taken = adamw(self.parameters, gradients, self.moments, lr=lr, weight_decay=decay)
        if bool(taken):
            self.parameters, self.moments = moved, moments
        return bool(taken)

    def sgd_step(self, gradients: Parameters, momentum: float) -> None:
        """One step of SGD with momentum; its velocity is the first moment."""
        decay, lr = self.settings.weight_decay, self.settings.lr
        speed = {
            name: momentum * self.moments.first[name] + gradients[name] + decay * value
            for name, value in self.parameters.items()
        }
        self.parameters = {name: value - lr * speed[name] for name, value in self.parameters.items()}
        self.moments = Moments(speed, self.moments.second, self.moments.steps + 1)

    def gradients(
        self, parameters: Parameters, images: Tensor, fraction: float
    ) -> tuple[Parameters, Tensor, Tensor]:
        """Gradients of the confident views' loss at some weights; all views' logits; the confident ones."""
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        with torch.enable_grad():
            logits = self.logits(leaves, images)
            chosen = select_confident(logits, fraction, self.settings.tsallis)
            found = torch.autograd.grad(self.loss(logits[chosen]), list(leaves.values()))
        return dict(zip(leaves, found, strict=True)), logits.detach(), chosen

    def logits(self, parameters: Parameters, images: Tensor) -> Tensor:
        return self.classifier.logits(self.encode(parameters, images), self.text)

    def encode(self, parameters: Parameters, images: Tensor) -> Tensor:
        """Normalised features [n, d]."""
        weights = {name: value.to(images.dtype) for name, value in self.weights(parameters).items()}
        features, _ = functional_call(self.tower, weights, (images, None))
        return F.normalize(features.to(self.classifier.dtype), dim=-1)

    def grow(self, old: Self) -> None:
        self.restore(old.snapshot())

    def summary(self) -> dict[str, Any]:
        return {"skipped_updates": self.skipped_updates}

    def snapshot(self) -> Snapshot:
        values = {name: getattr(self, name) for name in self.saved}
        if self.period == 1:  # nothing carries over
            return Snapshot({}, values)
        tensors = tuned_tensors(self.parameters, self.moments)
        return Snapshot(tensors, values | {"steps": self.moments.steps})

    def restore(self, snapshot: Snapshot) -> None:
        counts = {name for name in self.saved if isinstance(getattr(self, name), int)}
        wanted = {name: whole() if name in counts else maybe(real(0)) for name in self.saved}
        check_plain(snapshot.values, wanted, "method")
        for name in self.saved:
            setattr(self, name, snapshot.values[name])
        if self.period != 1:
            check_plain(snapshot.values, {"steps": whole()}, "method")
            check_like(snapshot.tensors, tuned_tensors(self.start, fresh_moments(self.start)))
            tensors = {name: value.to(self.text.device) for name, value in snapshot.tensors.items()}
            self.parameters, self.moments = tuned_from(tensors, snapshot.values["steps"])


def norms(tower: nn.Module) -> Parameters:
    """Weights and biases of the layer norms, by name."""
    modules = {name for name, module in tower.named_modules() if isinstance(module, nn.LayerNorm)}
    return {name: value for name, value in tower.named_parameters() if name.rpartition(".")[0] in modules}


def private_copy(tower: nn.Module) -> nn.Module:
    """A module of its own with the shared weights; `functional_call` replaces them for one call."""
    return copy.deepcopy(tower, {id(value): value for value in tower.parameters()})
