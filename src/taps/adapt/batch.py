"""The step of `taps.adapt.step` for many images at once, all of which start from the same prompts.

The images share the text features of these prompts; each has its own gradient and its own prompts after
the update. Every image gets the numbers of a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from taps.adapt.gradient import NOTHING, Gradient, Point, to_parameters
from taps.adapt.losses import mean_entropy
from taps.adapt.memory import Memory
from taps.adapt.optimiser import adamw_from_rest, fresh_moments
from taps.adapt.step import Scored, StepResult, StepSettings, score_views
from taps.clip import TextLayout
from taps.kernels.many import pull_back
from taps.prompts.base import Parameters
from taps.prompts.classifier import Classifier

if TYPE_CHECKING:
    from taps.adapt.graphs.capture import GraphCapture

VIEWS = {"cpu": 32, "cuda": 512}  # run together; more of them gain nothing and take memory
IMAGES = 32  # run together, where each has few views
FEWEST = {"cpu": 4}  # images that gain by running together; fewer are as fast or faster one by one


def batch_size(views: int, device: str = "cuda") -> int:
    """How many images of so many views run together on a kind of device.

    >>> batch_size(64), batch_size(1), batch_size(1, "cpu"), batch_size(8, "cpu")
    (8, 32, 32, 4)
    """
    fit = min(IMAGES, VIEWS.get(device, VIEWS["cuda"]) // views)
    return fit if fit >= FEWEST.get(device, 1) else 1


def report(probs: Tensor, entropy: Tensor, taken: Tensor) -> Tensor:
    """Probabilities [K], H_t and whether the update was made, as one tensor; of many steps, in rows."""
    return torch.cat([probs, entropy[..., None], taken[..., None]], dim=-1)


def send_to_host(tensor: Tensor) -> Callable[[], Tensor]:
    """Start a copy to the host; the function waits for it, but not for work launched since."""
    if not tensor.is_cuda:
        return tensor.cpu
    host = torch.empty_like(tensor, device="cpu", pin_memory=True).copy_(tensor, non_blocking=True)
    copied = torch.cuda.current_stream(tensor.device).record_event()

    def arrived() -> Tensor:
        copied.synchronize()
        return host

    return arrived


@dataclass(frozen=True)
class ViewScores:
    """The confident views of one image or of many, and the gradient of their loss."""

    features: Tensor  # normalised, with the graph to `vision`
    vision: Tensor | None  # the leaf; None for text-only prompts
    by_features: Tensor  # gradient of the loss with respect to the features
    by_text: Tensor  # with respect to the text features

    def pull_back(self) -> Tensor | None:
        """The gradient of the vision tokens. The graph is kept and can be used again."""
        if self.vision is None:
            return None
        return pull_back([self.features], [self.vision], [self.by_features], retain_graph=True)[0]


@dataclass(frozen=True)
class Stepped:
    """The results of the steps of B images, still on the device, a row for each; see `StepResult`."""

    logits: Tensor
    entropy: Tensor
    taken: Tensor
    chosen: Tensor
    ensemble: Tensor
    features: Tensor

    def each(self, start: Point) -> list[StepResult]:
        """The same image by image; the copy of each `report` to the host is started."""
        moments = fresh_moments(start.parameters)
        arrived = send_to_host(report(torch.softmax(self.logits, dim=-1), self.entropy, self.taken))
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
                arrived=lambda index=index: arrived()[index],  # type: ignore[misc]
            )
            for index in range(len(self.logits))
        ]


class OneStream:
    """The streams of a `GraphCapture` without a second one: everything runs in order."""

    def side_stream(self) -> AbstractContextManager[object]:
        return nullcontext()

    def join(self) -> None:
        pass


def take_steps(
    classifier: Classifier,
    start: Point,
    views: Tensor,
    labelled: Gradient,
    settings: StepSettings,
    streams: GraphCapture | OneStream = OneStream(),
) -> Stepped:
    """Steps 2–8 for B images, each from the prompts at `start` and a fresh optimiser, without alignment.

    Args:
        classifier: The frozen model and the classes.
        start: θ0, with its graph.
        views: Pixels 0..255 [B, N, 3, S, S].
        labelled: The constant gradient of each image's labelled memory (`labelled_gradients`).
        settings: Learning rate, weights.
        streams: With two, the backwards through both towers, and then texts and view 0, run side by side.
    """
    # A tensor that one stream made for the other keeps its name until they join: see `graphs.side_stream`.
    scored = score_views(classifier, start, views, settings)  # 2–4
    with streams.side_stream():
        seen = see_each(classifier, start, scored, settings)
    streams.join()
    with streams.side_stream():
        by_vision = seen.pull_back()
    at_once = views.is_cuda and isinstance(classifier.layout, TextLayout)
    by_text = start.pull_back_each(Gradient(seen.by_text, None), at_once=at_once).text
    streams.join()
    gradient = Gradient(by_text, by_vision) + labelled
    parameters, taken = update_each(classifier, start, gradient, settings)  # 7
    logits = predict_each(classifier, scored, parameters, streams)  # 8
    return Stepped(logits, scored.entropy, taken, scored.chosen, scored.ensemble, scored.features)


def labelled_gradients(memories: Sequence[Memory | None], start: Point) -> Gradient:
    """The constant gradients of tokens of several episodic memories, in rows; zero where one is empty."""
    known = [NOTHING if memory is None else memory.constant() for memory in memories]

    def rows(name: str, like: Tensor | None) -> Tensor | None:
        if like is None:
            return None
        zero = torch.zeros_like(like, dtype=torch.float64)
        parts = [getattr(each, name) for each in known]
        return torch.stack([zero if part is None else part for part in parts])

    return Gradient(rows("text", start.tokens.text), rows("vision", start.tokens.vision))


def see_each(classifier: Classifier, start: Point, scored: Scored, settings: StepSettings) -> ViewScores:
    """The confident views of each image, with the gradient of its `weight_entropy · H_t`."""
    count, kept = scored.chosen.shape
    text, vision = start.text.detach().expand(count, -1, -1).requires_grad_(), None
    features = scored.features.take_along_dim(scored.chosen[..., None], dim=1)
    if start.tokens.vision is not None:
        vision = start.tokens.vision.detach().expand(count, -1, -1, -1).requires_grad_()
        rows = torch.arange(count, device=scored.chosen.device)[:, None]
        with torch.enable_grad():
            each = vision.repeat_interleave(kept, dim=0).transpose(0, 1)
            features = classifier.image(scored.images[rows, scored.chosen].flatten(0, 1), each)
            features = features.view(count, kept, -1)
    seen = features.detach().requires_grad_()
    with torch.enable_grad():
        loss = settings.weight_entropy * mean_entropy(classifier.logits(seen, text)).sum()
    by_text, by_features = torch.autograd.grad(loss, [text, seen])
    return ViewScores(features, vision, by_features, by_text)


def update_each(
    classifier: Classifier, start: Point, gradient: Gradient, settings: StepSettings
) -> tuple[Parameters, Tensor]:
    """Each image's parameters after one AdamW step, in rows, and whether it was taken."""
    gradients = to_parameters(classifier, start.parameters, gradient, many=True)
    return adamw_from_rest(start.parameters, gradients, lr=settings.lr, weight_decay=settings.weight_decay)


@torch.no_grad()
def predict_each(
    classifier: Classifier, scored: Scored, parameters: Parameters, streams: GraphCapture | OneStream
) -> Tensor:
    """Logits of each image's view 0 at its own prompts [B, K]."""

    def tokens(mine: Parameters) -> dict[str, Tensor]:
        return {name: value for name, value in vars(classifier.tokens(mine)).items() if value is not None}

    made = {name: value.transpose(0, 1) for name, value in torch.vmap(tokens)(parameters).items()}
    features = scored.features[:, 0]
    if "vision" in made:
        with streams.side_stream():
            features = classifier.image(scored.images[:, 0], made["vision"])
    texts = classifier.text(made["text"])
    streams.join()
    return classifier.logits(features[:, None], texts)[:, 0]
