"""The step of `taps.adapt.step` for many images at once, all of which start from the same prompts.

The images share the prompts they start from and so the text features there; each has its own gradient,
update, and prompts after it. Every image gets the numbers of a step of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from taps.adapt.gradient import Gradient, Point, to_parameters
from taps.adapt.losses import mean_entropy
from taps.adapt.memory import Memory
from taps.adapt.optimiser import adamw, fresh_moments
from taps.adapt.step import Scored, StepResult, StepSettings, score_views
from taps.clip import TextLayout
from taps.prompts.base import Parameters
from taps.prompts.classifier import Classifier

VIEWS = {"cpu": 32, "cuda": 512}
"""Views that are run together; more of them gain nothing and take memory."""
IMAGES = 32
"""Images that are run together, where each has few views."""


def batch_size(views: int, device: str = "cuda") -> int:
    """How many images of so many views are run together on a kind of device.

    >>> batch_size(64), batch_size(64, "cpu"), batch_size(1)
    (8, 1, 32)
    """
    return max(1, min(IMAGES, VIEWS.get(device, VIEWS["cuda"]) // views))


@dataclass(frozen=True)
class Stepped:
    """What the steps of B images leave behind, still on the device, a row for each; see `StepResult`."""

    logits: Tensor
    entropy: Tensor
    taken: Tensor
    chosen: Tensor
    ensemble: Tensor
    features: Tensor

    def each(self, start: Point) -> list[StepResult]:
        """The same image by image."""
        moments = fresh_moments(start.parameters)
        return [
            StepResult(
                self.logits[index],
                self.entropy[index],
                self.taken[index],
                self.chosen[index],
                self.features[index, 0],
                start,
                moments,
                self.ensemble[index],
                self.features[index],
            )
            for index in range(len(self.logits))
        ]


def take_steps(
    classifier: Classifier, start: Point, views: Tensor, labelled: Gradient, settings: StepSettings
) -> Stepped:
    """Steps 2–8 for B images, each from the prompts at `start` and an optimiser without a past.

    Args:
        classifier: The frozen model and the classes.
        start: θ0, with its graph.
        views: Of each image, pixels 0..255 [B, N, 3, S, S].
        labelled: The constant gradient of each image's labelled memory (`labelled_gradients`).
        settings: Learning rate, weights; there is no alignment.
    """
    scored = score_views(classifier, start, views, settings)  # 2–4
    gradient = views_gradients(classifier, start, scored, settings)
    at_once = views.is_cuda and isinstance(classifier.layout, TextLayout)
    gradient = start.pull_back_each(gradient, at_once=at_once) + labelled
    parameters, taken = update_each(classifier, start, gradient, settings)  # 7
    logits = predict_each(classifier, scored, parameters)  # 8
    return Stepped(logits, scored.entropy, taken, scored.chosen, scored.ensemble, scored.features)


def labelled_gradients(memories: Sequence[Memory | None], start: Point) -> Gradient:
    """The constant gradients on tokens of several episodic memories, in rows; zero where one is empty."""
    known = [None if memory is None else memory.constant() for memory in memories]

    def rows(name: str, like: Tensor | None) -> Tensor | None:
        if like is None:
            return None
        zero = torch.zeros_like(like, dtype=torch.float64)
        parts = [None if each is None else getattr(each, name) for each in known]
        return torch.stack([zero if part is None else part for part in parts])

    return Gradient(rows("text", start.tokens.text), rows("vision", start.tokens.vision))


def views_gradients(classifier: Classifier, start: Point, scored: Scored, settings: StepSettings) -> Gradient:
    """Of each image, the gradient of its `weight_entropy · H_t` on text features and vision tokens."""
    count, kept = scored.chosen.shape
    text = start.text.detach().expand(count, -1, -1).requires_grad_()
    if start.tokens.vision is None:
        leaves = [text]
        features = scored.features.take_along_dim(scored.chosen[..., None], dim=1)
    else:
        leaves = [text, start.tokens.vision.detach().expand(count, -1, -1, -1).requires_grad_()]
        rows = torch.arange(count, device=scored.chosen.device)[:, None]
        with torch.enable_grad():
            vision = leaves[1].repeat_interleave(kept, dim=0).transpose(0, 1)
            features = classifier.image(scored.images[rows, scored.chosen].flatten(0, 1), vision)
            features = features.view(count, kept, -1)
    with torch.enable_grad():
        loss = settings.weight_entropy * mean_entropy(classifier.logits(features, text)).sum()
    grads = torch.autograd.grad(loss, leaves)
    return Gradient(grads[0], grads[1] if len(grads) > 1 else None)


def update_each(
    classifier: Classifier, start: Point, gradient: Gradient, settings: StepSettings
) -> tuple[Parameters, Tensor]:
    """Each image's parameters after one AdamW step, in rows, and whether it was taken."""
    by_parameter = to_parameters(classifier, start.parameters, gradient, many=True)
    moments = fresh_moments(start.parameters)

    def move(gradients: Parameters) -> tuple[Parameters, Tensor]:
        lr, decay = settings.lr, settings.weight_decay
        moved, _, taken = adamw(start.parameters, gradients, moments, lr=lr, weight_decay=decay, fuse=False)
        return moved, taken

    return torch.vmap(move)(by_parameter)


@torch.no_grad()
def predict_each(classifier: Classifier, scored: Scored, parameters: Parameters) -> Tensor:
    """Logits of each image's view 0 at its own prompts [B, K]."""

    def tokens(mine: Parameters) -> dict[str, Tensor]:
        return {name: value for name, value in vars(classifier.tokens(mine)).items() if value is not None}

    made = {name: value.transpose(0, 1) for name, value in torch.vmap(tokens)(parameters).items()}
    features = scored.features[:, 0]
    if "vision" in made:
        features = classifier.image(scored.images[:, 0], made["vision"])
    return classifier.logits(features[:, None], classifier.text(made["text"]))[:, 0]
