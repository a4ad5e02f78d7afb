"""The adaptation step for one image. Numbers in comments are the steps of docs/paper.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from taps.adapt.gradient import Gradient, Point, differentiate, leaves_of, point_at, to_parameters
from taps.adapt.losses import mean_entropy, mean_log_probs, select_confident
from taps.adapt.memory import Alignment, Labelled
from taps.adapt.optimiser import Moments, adamw
from taps.prompts.base import Parameters
from taps.prompts.classifier import Classifier


@dataclass(frozen=True)
class StepSettings:
    """The numbers of one step; symbols as in the paper."""

    fraction: float  # ρ: share of the views that is kept
    lr: float
    weight_decay: float
    weight_entropy: float = 1.0
    weight_coarse: float = 0.0  # β
    tsallis: float = 1.0  # q of the entropy that views are kept by


@dataclass(frozen=True)
class Scored:
    """The views of one image at the prompts before the update; of many, every tensor has a row for each."""

    images: Tensor  # preprocessed views [N, 3, S, S]
    features: Tensor  # normalised [N, d]
    logits: Tensor  # [N, K]
    chosen: Tensor  # indices of the confident views
    entropy: Tensor  # H_t
    ensemble: Tensor  # mean log-probability of the confident views [K]


def nothing() -> None:
    """The `note` of a step that has nothing to note."""


@dataclass(frozen=True)
class StepResult:
    """Everything a step leaves behind, still on the device."""

    logits: Tensor  # of view 0 at the updated prompts [K]; the prediction
    entropy: Tensor  # H_t, before any update
    taken: Tensor  # whether the update was made; one with a gradient that is not finite is skipped
    chosen: Tensor  # indices of the confident views
    feature: Tensor  # of view 0 at the prompts before the update, normalised [d]
    end: Point  # the prompts after the update
    moments: Moments  # the optimiser's state after the update
    ensemble: Tensor  # mean log-probability of the confident views before the update [K]
    features: Tensor  # of all views before the update, normalised [N, d]
    anchored: Tensor | None = None  # feature of view 0 at the loaded prompts, where the step computed it
    note: Callable[[], None] = nothing  # waits for the device and updates the host's state; call once
    arrived: Callable[[], Tensor] | None = None  # waits for `taps.adapt.batch.report` of it, where sent


def always(entropy: Tensor) -> bool:
    return True


def take_step(
    classifier: Classifier,
    start: Point,
    moments: Moments,
    views: Tensor,
    memory: Labelled | None,
    settings: StepSettings,
    *,
    alignment: Alignment | None = None,
    update: Callable[[Tensor], bool] = always,
    keep_graph: bool = False,
) -> StepResult:
    """Steps 2–8 for one image, from the prompts at `start`.

    Args:
        classifier: The frozen model and the classes.
        start: The prompts before the update: θ0 when every image starts afresh.
        moments: The optimiser's state; fresh when every image starts afresh.
        views: Pixels 0..255 [N, 3, S, S]; view 0 is the image itself.
        memory: The labelled images; None for methods that never ask.
        settings: Learning rate, weights.
        alignment: Source statistics to align to, where β is not 0.
        update: Whether to learn from an image of this entropy.
        keep_graph: Whether the next step starts where this one ends.
    """
    scored = score_views(classifier, start, views, settings)  # 2–4
    if update(scored.entropy):
        parameters, moments, taken = update_prompts(
            classifier, start, moments, scored, memory, settings, alignment
        )  # 7
        end = point_at(classifier, parameters, graph=keep_graph)
        logits = predict_view(classifier, scored, end)  # 8
    else:
        end, logits, taken = start, scored.logits[0], torch.zeros_like(scored.entropy, dtype=torch.bool)
    feature = scored.features[0]
    return StepResult(
        logits, scored.entropy, taken, scored.chosen, feature, end, moments, scored.ensemble, scored.features
    )


@torch.no_grad()  # scoring needs no graph: only the confident views are differentiated
def score_views(classifier: Classifier, start: Point, views: Tensor, settings: StepSettings) -> Scored:
    """Steps 2–4: the views' logits, the confident ones, H_t; of one image, or of many [B, N, 3, S, S]."""
    images = classifier.clip.preprocess(views.flatten(0, -4))  # 2
    features = classifier.image(images, start.tokens.vision).view(*views.shape[:-3], -1)
    logits = classifier.logits(features, start.text)
    chosen = select_confident(logits, settings.fraction, settings.tsallis)  # 3
    kept = logits.take_along_dim(chosen[..., None], dim=-2)
    entropy, ensemble = mean_entropy(kept), mean_log_probs(kept)  # 4
    return Scored(images.view(views.shape), features, logits, chosen, entropy, ensemble)


def update_prompts(
    classifier: Classifier,
    start: Point,
    moments: Moments,
    scored: Scored,
    memory: Labelled | None,
    settings: StepSettings,
    alignment: Alignment | None,
) -> tuple[Parameters, Moments, Tensor]:
    """Step 7: one AdamW step on the loss of the confident views and the labelled memory."""
    gradient = views_gradient(classifier, start, scored, settings, alignment)
    if memory is not None:
        gradient = start.pull_back(gradient + memory.fresh(classifier, start)) + memory.constant()
    else:
        gradient = start.pull_back(gradient)
    by_parameter = to_parameters(classifier, start.parameters, gradient)
    return adamw(start.parameters, by_parameter, moments, lr=settings.lr, weight_decay=settings.weight_decay)


def views_gradient(
    classifier: Classifier,
    start: Point,
    scored: Scored,
    settings: StepSettings,
    alignment: Alignment | None,
) -> Gradient:
    """Gradient of `weight_entropy · H_t + β · L_coarse` on text features and vision tokens."""
    images, chosen = scored.images, scored.chosen
    text, vision = leaves_of(start)
    aligned = alignment if settings.weight_coarse and vision is not None else None
    layers = aligned.layers if aligned and aligned.form == "promptalign" else ()
    with torch.enable_grad():
        if vision is None:  # text-only prompts cannot change an image's features
            features = scored.features[chosen]
        else:
            features, inputs = classifier.image_and_layers(images[chosen], vision, layers)
        loss = settings.weight_entropy * mean_entropy(classifier.logits(features, text))
        if aligned and aligned.coarse:
            if not layers:  # the printed equation averages over all views, not only the confident ones
                inputs = aligned.inputs(classifier, images, vision)
            loss = loss + settings.weight_coarse * aligned.loss(inputs, aligned.coarse)
    return differentiate(loss, text, vision)


@torch.no_grad()
def predict_view(classifier: Classifier, scored: Scored, end: Point) -> Tensor:
    """Step 8: logits of view 0 at the updated prompts [K]; text-only prompts leave its feature as it was."""
    vision = end.tokens.vision
    again = scored.features[:1] if vision is None else classifier.image(scored.images[:1], vision)
    return classifier.logits(again, end.text)[0]
