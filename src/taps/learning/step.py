"""The adaptation step: once, for one image or for many that start alike, whatever launches it.

Numbers in comments are the steps of docs/paper.md. Views are [N, 3, S, S]; those of many images are
[B, N, 3, S, S], and every result has a row for each then. `taps.learning.fast` captures these parts in its
own order and computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from taps.learning.alignment import Alignment
from taps.learning.gradient import NOTHING, Gradient, Point, point_at, to_parameters
from taps.learning.losses import mean_entropy, mean_log_probs, select_confident
from taps.learning.memory import Labelled
from taps.learning.optimiser import Moments, adamw, adamw_from_rest
from taps.model.clip import TextLayout
from taps.model.kernels.many import pull_back
from taps.model.prompts.classifier import Classifier
from taps.model.prompts.families import Parameters, PromptTokens


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
    """The views at the prompts before the update."""

    images: Tensor  # preprocessed views [N, 3, S, S]
    features: Tensor  # normalised [N, d]
    logits: Tensor  # [N, K]
    chosen: Tensor  # indices of the confident views
    entropy: Tensor  # H_t
    ensemble: Tensor  # mean log-probability of the confident views [K]

    @property
    def many(self) -> bool:
        return self.chosen.dim() > 1

    @property
    def rows(self) -> Tensor:
        """Where the confident views lie among all views of all images."""
        if not self.many:
            return self.chosen
        images, views = self.features.shape[:2]
        return (torch.arange(images, device=self.chosen.device)[:, None] * views + self.chosen).flatten()


@dataclass(frozen=True)
class ViewScores:
    """The confident views, differentiated as far as their features.

    The gradient on the text features is known before the backward through the vision tower, so the ways back
    through both towers may be taken at the same time.
    """

    features: Tensor  # normalised, with the graph to `vision`
    inputs: list[Tensor]  # of the blocks that are aligned, likewise
    vision: Tensor | None  # the leaf; None for text-only prompts
    by_features: Tensor  # gradient of the loss on the features
    by_inputs: list[Tensor]  # on the inputs
    by_text: Tensor  # on the text features

    def pull_back(self) -> Tensor | None:
        """The gradient of the vision tokens. The graph is kept and can be used again."""
        if self.vision is None:
            return None
        given = [self.by_features, *self.by_inputs]
        return pull_back([self.features, *self.inputs], [self.vision], given, retain_graph=True)[0]


def nothing() -> None:
    """The `note` of a step that has nothing to note."""


@dataclass(frozen=True)
class StepResult:
    """Everything a step leaves behind, still on the device."""

    logits: Tensor  # of view 0 at the updated prompts [K]; the prediction
    entropy: Tensor  # H_t, before any update
    taken: Tensor  # whether the update was made; one with a gradient that is not finite is skipped
    chosen: Tensor  # indices of the confident views
    end: Point  # the prompts after the update; those before it where many images start alike
    moments: Moments  # the optimiser's state after the update
    ensemble: Tensor  # mean log-probability of the confident views before the update [K]
    features: Tensor  # of all views before the update, normalised [N, d]
    anchored: Tensor | None = None  # feature of view 0 at the loaded prompts, where the step computed it
    note: Callable[[], None] = nothing  # waits for the device and updates the host's state; call once
    arrived: Callable[[], Tensor] | None = None  # waits for `taps.learning.fast.report` of it, where sent


class Streams(Protocol):
    """Where work is launched. What one stream made for the other keeps its name until they join.

    Memory that is freed earlier could be handed out again while the other stream reads it.
    """

    def side_stream(self) -> AbstractContextManager[object]:
        """Work launched inside may overlap with what follows, until `join`."""
        ...

    def join(self) -> None: ...


class InOrder:
    """One stream alone."""

    def side_stream(self) -> AbstractContextManager[object]:
        return nullcontext()

    def join(self) -> None:
        pass


IN_ORDER = InOrder()


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
    streams: Streams = IN_ORDER,
) -> StepResult:
    """Steps 2–8, from the prompts at `start`.

    Args:
        classifier: The frozen model and the classes.
        start: The prompts before the update: θ0 when every image starts afresh.
        moments: The optimiser's state; fresh when every image starts afresh, as many images always do.
        views: Pixels 0..255; view 0 is the image itself.
        memory: The labelled images; None for methods that never ask.
        settings: Learning rate, weights.
        alignment: Source statistics to align to, where β is not 0; for one image.
        update: Whether to learn from an image of this entropy; of one image.
        keep_graph: Whether the next step starts where this one ends.
        streams: Two of them let both towers work at the same time.
    """
    scored = score_views(classifier, start, views, settings)  # 2–4
    if not update(scored.entropy):
        return not_updated(scored, start, moments)
    gradient = step_gradient(classifier, start, scored, memory, settings, alignment, streams)
    parameters, moments, taken = move(classifier, start, moments, gradient, settings)  # 7
    end = start if scored.many else point_at(classifier, parameters, graph=keep_graph)
    text = None if scored.many else end.text
    logits = predict_view(classifier, scored, parameters, streams, text)  # 8
    return step_result(scored, logits, taken, end, moments)


def step_result(scored: Scored, logits: Tensor, taken: Tensor, end: Point, moments: Moments) -> StepResult:
    seen = scored.ensemble, scored.features
    return StepResult(logits, scored.entropy, taken, scored.chosen, end, moments, *seen)


def not_updated(scored: Scored, end: Point, moments: Moments) -> StepResult:
    """The result for an image that is not learned from."""
    taken, logits = torch.zeros_like(scored.entropy, dtype=torch.bool), scored.logits[..., 0, :]
    return step_result(scored, logits, taken, end, moments)


@torch.no_grad()  # scoring needs no graph: only the confident views are differentiated
def score_views(classifier: Classifier, start: Point, views: Tensor, settings: StepSettings) -> Scored:
    """Steps 2–4: the views' logits, the confident ones, H_t."""
    images = classifier.clip.preprocess(views.flatten(0, -4))  # 2
    features = classifier.image(images, start.tokens.vision).view(*views.shape[:-3], -1)
    logits = classifier.logits(features, start.text)
    chosen = select_confident(logits, settings.fraction, settings.tsallis)  # 3
    kept = logits.take_along_dim(chosen[..., None], dim=-2)
    entropy, ensemble = mean_entropy(kept), mean_log_probs(kept)  # 4
    return Scored(images.view(views.shape), features, logits, chosen, entropy, ensemble)


def step_gradient(
    classifier: Classifier,
    start: Point,
    scored: Scored,
    memory: Labelled | None,
    settings: StepSettings,
    alignment: Alignment | None,
    streams: Streams = IN_ORDER,
) -> Gradient:
    """The gradient of the whole loss on the tokens: of the views, and of the labelled memory."""
    with streams.side_stream():
        seen = differentiate_views(classifier, start, scored, settings, alignment)
    streams.join()
    with streams.side_stream():
        by_vision = seen.pull_back()
    recent = NOTHING if memory is None else memory.fresh(classifier, start)
    by_text = pull_back_texts(classifier, start, Gradient(seen.by_text, None) + Gradient(recent.text, None))
    streams.join()
    gradient = Gradient(by_text, by_vision) + Gradient(None, recent.vision)
    return gradient if memory is None else gradient + memory.constant()


def differentiate_views(
    classifier: Classifier,
    start: Point,
    scored: Scored,
    settings: StepSettings,
    alignment: Alignment | None = None,
) -> ViewScores:
    """Gradient of `weight_entropy · H_t + β · L_coarse` on text features, image features and block inputs."""
    with torch.enable_grad():
        features, inputs, vision = encode_chosen(classifier, start, scored, settings, alignment)
        text = start.text.detach().expand(*scored.chosen.shape[:-1], -1, -1).requires_grad_()
        seen, *compared = [each.detach().requires_grad_() for each in (features, *inputs)]
        loss = settings.weight_entropy * mean_entropy(classifier.logits(seen, text)).sum()
        if alignment and alignment.coarse and inputs:
            loss = loss + settings.weight_coarse * alignment.loss(compared, alignment.coarse)
    by_text, by_features, *by_inputs = torch.autograd.grad(loss, [text, seen, *compared])
    return ViewScores(features, inputs, vision, by_features, by_inputs, by_text)


def encode_chosen(
    classifier: Classifier,
    start: Point,
    scored: Scored,
    settings: StepSettings,
    alignment: Alignment | None,
) -> tuple[Tensor, list[Tensor], Tensor | None]:
    """Features of the confident views, block inputs to align, and the vision tokens as the leaf of both."""
    *lead, kept = scored.chosen.shape
    if start.tokens.vision is None:  # text-only prompts cannot change an image's features
        return scored.features.take_along_dim(scored.chosen[..., None], dim=-2), [], None
    vision = start.tokens.vision.detach()
    vision = vision.expand(*lead, *vision.shape).requires_grad_()
    each = vision.repeat_interleave(kept, dim=0).transpose(0, 1) if scored.many else vision
    images = scored.images.flatten(0, -4)[scored.rows]
    if not (alignment and alignment.coarse and settings.weight_coarse):
        return classifier.image(images, each).view(*lead, kept, -1), [], vision
    if alignment.confident_only:
        return *classifier.image_and_layers(images, each, alignment.layers), vision
    # The printed equation averages over all views, not only the confident ones.
    return classifier.image(images, each), alignment.inputs(classifier, scored.images, vision), vision


def pull_back_texts(classifier: Classifier, start: Point, gradient: Gradient) -> Tensor | None:
    """The gradient of the context tokens; of many images in one backward where the kernels can."""
    if gradient.text is None or gradient.text.dim() == start.text.dim():
        return start.pull_back(gradient).text
    at_once = gradient.text.is_cuda and isinstance(classifier.layout, TextLayout)
    return start.pull_back_each(gradient, at_once=at_once).text


def move(
    classifier: Classifier, start: Point, moments: Moments, gradient: Gradient, settings: StepSettings
) -> tuple[Parameters, Moments, Tensor]:
    """Step 7: one AdamW step; the new parameters, the new moments, and whether it was taken."""
    tokens = (start.tokens.text, gradient.text), (start.tokens.vision, gradient.vision)
    many = any(token is not None and part is not None and part.dim() > token.dim() for token, part in tokens)
    by_parameter = to_parameters(classifier, start.parameters, gradient, many=many)
    lr, weight_decay = settings.lr, settings.weight_decay
    if not many:
        return adamw(start.parameters, by_parameter, moments, lr=lr, weight_decay=weight_decay)
    parameters, taken = adamw_from_rest(start.parameters, by_parameter, lr=lr, weight_decay=weight_decay)
    return parameters, moments, taken


@torch.no_grad()
def predict_view(
    classifier: Classifier,
    scored: Scored,
    parameters: Parameters,
    streams: Streams = IN_ORDER,
    text: Tensor | None = None,
) -> Tensor:
    """Step 8: logits of view 0 at the updated parameters [K]; `text` are their text features, where known."""
    tokens = tokens_of_each(classifier, parameters) if scored.many else classifier.tokens(parameters)
    with streams.side_stream():
        again = encode_view(classifier, scored, tokens.vision)
    text = classifier.text(tokens.text) if text is None else text
    streams.join()
    return classifier.logits(again, text).squeeze(-2)


def tokens_of_each(classifier: Classifier, parameters: Parameters) -> PromptTokens:
    """Tokens of many images' parameters, as the towers take them: [depth, B, tokens, width]."""

    def tokens(mine: Parameters) -> dict[str, Tensor]:
        return {name: value for name, value in vars(classifier.tokens(mine)).items() if value is not None}

    made = {name: value.transpose(0, 1) for name, value in torch.vmap(tokens)(parameters).items()}
    return PromptTokens(made.get("text"), made.get("vision"))


@torch.no_grad()
def encode_view(classifier: Classifier, scored: Scored, vision: Tensor | None) -> Tensor:
    """View 0's feature at the given vision tokens [1, d]; without any it is what it was."""
    if vision is None:
        return scored.features[..., :1, :]
    found = classifier.image(scored.images.narrow(-4, 0, 1).flatten(0, -4), vision)
    return found.view(*scored.features.shape[:-2], 1, -1)
