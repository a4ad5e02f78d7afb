"""THE step: what happens to one image. The numbers are those of the steps in docs/paper.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from taps.classifier import Classifier
from taps.gradient import Gradient, Point, point_at, to_parameters
from taps.losses import mean_entropy, select_confident
from taps.memory import Alignment, Memory
from taps.optimiser import Moments, adamw


@dataclass(frozen=True)
class StepSettings:
    """The numbers of one step; symbols as in the paper."""

    fraction: float  # ρ: share of the views that is kept
    lr: float
    weight_decay: float
    weight_entropy: float = 1.0
    weight_coarse: float = 0.0  # β


@dataclass(frozen=True)
class Outcome:
    """Everything a step leaves behind, still on the device.

    Attributes:
        logits: Of view 0 at the updated prompts [K]; the prediction.
        entropy: H_t, before any update.
        taken: Whether the update was made (not skipped for a gradient that is not finite).
        chosen: Indices of the confident views.
        feature: Normalised feature of view 0 at the prompts before the update.
        end: The prompts after the update.
        moments: The optimiser's memory after the update.
    """

    logits: Tensor
    entropy: Tensor
    taken: Tensor
    chosen: Tensor
    feature: Tensor
    end: Point
    moments: Moments


def always(entropy: Tensor) -> bool:
    return True


def take_step(
    classifier: Classifier,
    start: Point,
    moments: Moments,
    views: Tensor,
    memory: Memory | None,
    settings: StepSettings,
    *,
    alignment: Alignment | None = None,
    update: Callable[[Tensor], bool] = always,
    keep_graph: bool = False,
) -> Outcome:
    """Steps 2–8 for one image, from the prompts at `start`.

    Args:
        classifier: The frozen model and the classes.
        start: The prompts before the update: θ0 when every image starts afresh.
        moments: The optimiser's memory; fresh when every image starts afresh.
        views: The views of the image, pixels 0..255 [N, 3, S, S]; view 0 is the image itself.
        memory: The labelled images; None for methods that never ask.
        settings: Learning rate, weights.
        alignment: Source statistics to align to, where β is not 0.
        update: Whether to learn from an image of this entropy.
        keep_graph: Whether the next step starts where this one ends.
    """
    images = classifier.clip.preprocess(views)  # 2
    with torch.no_grad():  # scoring needs no graph: only the confident views are differentiated
        features = classifier.image(images, start.tokens.vision)
        logits = classifier.logits(features, start.text)
        chosen = select_confident(logits, settings.fraction)  # 3
        entropy = mean_entropy(logits[chosen])  # 4
    if not update(entropy):
        return Outcome(logits[0], entropy, torch.tensor(False), chosen, features[0], start, moments)
    gradient = views_gradient(classifier, start, images, features, chosen, settings, alignment)  # 7
    if memory is not None:
        gradient = start.pull_back(gradient + memory.fresh(classifier, start)) + memory.constant()
    else:
        gradient = start.pull_back(gradient)
    by_parameter = to_parameters(classifier, start.parameters, gradient)
    parameters, moments, taken = adamw(
        start.parameters, by_parameter, moments, lr=settings.lr, weight_decay=settings.weight_decay
    )
    end = point_at(classifier, parameters, graph=keep_graph)
    with torch.no_grad():  # 8
        again = features[:1] if end.tokens.vision is None else classifier.image(images[:1], end.tokens.vision)
        return Outcome(
            classifier.logits(again, end.text)[0], entropy, taken, chosen, features[0], end, moments
        )


def views_gradient(
    classifier: Classifier,
    start: Point,
    images: Tensor,
    features: Tensor,
    chosen: Tensor,
    settings: StepSettings,
    alignment: Alignment | None,
) -> Gradient:
    """Gradient of `weight_entropy · H_t + β · L_coarse` on text features and vision tokens."""
    text = start.text.detach().requires_grad_()
    if start.tokens.vision is None:  # text-only prompts cannot change an image's features
        with torch.enable_grad():
            loss = settings.weight_entropy * mean_entropy(classifier.logits(features[chosen], text))
        return Gradient(torch.autograd.grad(loss, text)[0], None)
    vision = start.tokens.vision.detach().requires_grad_()
    aligned = alignment if settings.weight_coarse else None
    with torch.enable_grad():
        layers = aligned.layers if aligned and aligned.form == "promptalign" else ()
        again, kept = classifier.image_and_layers(images[chosen], vision, layers)
        loss = settings.weight_entropy * mean_entropy(classifier.logits(again, text))
        if aligned and aligned.coarse:
            if not layers:  # the printed equation averages over all views, not only the confident ones
                kept = [
                    layer.to(again.dtype)
                    for layer in classifier.clip.image_layers(images, vision, aligned.layers)
                ]
            loss = loss + settings.weight_coarse * aligned.loss(kept, aligned.coarse)
    return Gradient(*torch.autograd.grad(loss, [text, vision], allow_unused=True))
