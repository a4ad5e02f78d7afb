"""The end of a step on two CUDA streams: work that does not depend on each other runs at the same time.

The kernels there are too small to fill a GPU one by one. The gradient on the text features is known as soon
as the forward of the confident views is done, so the backward through the text tower overlaps with the one
through the vision tower; after the update, encoding the texts overlaps with encoding view 0. The numbers are
those of `taps.adapt.step`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from taps.adapt.batch import ViewScores
from taps.adapt.gradient import NOTHING, Gradient, Point, to_parameters
from taps.adapt.graphs.capture import GraphCapture
from taps.adapt.graphs.setup import StreamSetup
from taps.adapt.losses import mean_entropy
from taps.adapt.memory import Labelled
from taps.adapt.optimiser import Moments, adamw
from taps.adapt.step import Scored, update_prompts
from taps.prompts.base import Parameters
from taps.prompts.classifier import Classifier


def has_two_towers(setup: StreamSetup, start: Point) -> bool:
    """Whether there is a way back through either tower, and none from features in between (alignment)."""
    return (
        start.tokens.vision is not None
        and start.graph is not None
        and not (setup.settings.weight_coarse and setup.alignment)
    )


def see_views(setup: StreamSetup, start: Point, scored: Scored) -> ViewScores:
    """The confident views, differentiated as far as the features; see `taps.adapt.step.views_gradient`."""
    assert start.tokens.vision is not None
    text = start.text.detach().requires_grad_()
    vision = start.tokens.vision.detach().requires_grad_()
    with torch.enable_grad():
        features = setup.classifier.image(scored.images[scored.chosen], vision)
        seen = features.detach().requires_grad_()
        loss = setup.settings.weight_entropy * mean_entropy(setup.classifier.logits(seen, text))
    by_text, by_features = torch.autograd.grad(loss, [text, seen])
    return ViewScores(features, vision, by_features, by_text)


def update_on_two_streams(
    graphs: GraphCapture,
    setup: StreamSetup,
    start: Point,
    moments: Moments,
    scored: Scored,
    memory: Labelled | None,
) -> tuple[Parameters, Moments, Tensor]:
    """What `update_prompts` does; by it where there is one tower alone, or alignment to go back through."""
    if not has_two_towers(setup, start):
        return update_prompts(
            setup.classifier, start, moments, scored, memory, setup.settings, setup.alignment
        )
    # What one stream made for the other keeps its name until they are joined: memory that is freed earlier
    # could be handed out again while the other stream reads it.
    with graphs.side_stream():
        seen = see_views(setup, start, scored)
    graphs.join()
    with graphs.side_stream():
        by_vision = seen.pull_back()
    recent = NOTHING if memory is None else memory.fresh(setup.classifier, start)
    pulled = start.pull_back(Gradient(seen.by_text, None) + Gradient(recent.text, None))
    graphs.join()
    gradient = Gradient(pulled.text, by_vision) + Gradient(None, recent.vision)
    return move(setup, start, moments, gradient, memory)


def move(
    setup: StreamSetup, start: Point, moments: Moments, gradient: Gradient, memory: Labelled | None
) -> tuple[Parameters, Moments, Tensor]:
    """The end of `update_prompts`, from the gradient on tokens: the memory's constant part and AdamW."""
    if memory is not None:
        gradient = gradient + memory.constant()
    by_parameter = to_parameters(setup.classifier, start.parameters, gradient)
    lr, weight_decay = setup.settings.lr, setup.settings.weight_decay
    return adamw(start.parameters, by_parameter, moments, lr=lr, weight_decay=weight_decay)


@torch.no_grad()
def predict_on_two_streams(
    graphs: GraphCapture, classifier: Classifier, scored: Scored, parameters: Parameters
) -> Tensor:
    """Logits of view 0 at these parameters [K]: what `point_at` and `predict_view` give."""
    tokens = classifier.tokens(parameters)
    with graphs.side_stream():
        seen = view_zero(classifier, scored, tokens.vision)
    texts = classifier.text(tokens.text)
    graphs.join()
    return classifier.logits(seen, texts)[0]


@torch.no_grad()
def view_zero(classifier: Classifier, scored: Scored, vision: Tensor | None) -> Tensor:
    """View 0's feature at the given vision tokens [1, d]; without any it is what it was."""
    return scored.features[:1] if vision is None else classifier.image(scored.images[:1], vision)
