"""Gradients with respect to prompts: through the text tower once per point, to learned tensors at the end."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from taps.kernels.many import pull_back
from taps.prompts.base import Parameters, PromptTokens
from taps.prompts.classifier import Classifier


@dataclass(frozen=True)
class Gradient:
    """A gradient in two parts; either is None where there is nothing to differentiate.

    `text` is with respect to the text features [K, d] until it is pulled back, then to the context tokens.
    """

    text: Tensor | None
    vision: Tensor | None

    def __add__(self, other: Gradient) -> Gradient:
        return Gradient(_plus(self.text, other.text), _plus(self.vision, other.vision))

    def __mul__(self, factor: float) -> Gradient:
        return Gradient(*(None if part is None else part * factor for part in (self.text, self.vision)))


def _plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


NOTHING = Gradient(None, None)


@dataclass(frozen=True)
class Point:
    """Prompts at one value of their parameters, with the text features there and the way back through them.

    Attributes:
        parameters: The learned tensors.
        tokens: The tokens they become (detached).
        text: Normalised text features [K, d] (detached).
        graph: The same features with their graph, to the leaf `context`; None where none was asked for.
        context: The leaf.
    """

    parameters: Parameters
    tokens: PromptTokens
    text: Tensor
    graph: Tensor | None
    context: Tensor | None

    def pull_back(self, gradient: Gradient) -> Gradient:
        """A gradient on text features → one on context tokens. The graph stays, to be used again."""
        if gradient.text is None or self.graph is None or self.context is None:
            return Gradient(None, gradient.vision)
        (text,) = pull_back([self.graph], [self.context], [gradient.text], retain_graph=True)
        return Gradient(text, gradient.vision)

    def pull_back_each(self, gradient: Gradient, *, at_once: bool) -> Gradient:
        """The same for a gradient of each of B images [B, ...].

        Args:
            gradient: Of the images.
            at_once: Whether to go through the text tower once with all of them; else one by one.
        """
        if gradient.text is None or self.graph is None or self.context is None:
            return Gradient(None, gradient.vision)
        back = functools.partial(
            torch.autograd.grad if at_once else pull_back, [self.graph], [self.context], retain_graph=True
        )
        return Gradient(_each(back, [gradient.text], at_once=at_once)[0], gradient.vision)


def point_at(classifier: Classifier, parameters: Parameters, *, graph: bool = True) -> Point:
    """Encode the classes at the given parameters; one text forward."""
    with torch.no_grad():
        tokens = classifier.tokens(parameters)
    if not graph or tokens.text is None:
        with torch.no_grad():
            return Point(parameters, tokens, classifier.text(tokens.text), None, None)
    with torch.enable_grad():
        context = tokens.text.detach().requires_grad_()
        features = classifier.text(context)
    return Point(parameters, tokens, features.detach(), features, context)


def to_parameters(
    classifier: Classifier, parameters: Parameters, gradient: Gradient, *, many: bool = False
) -> Parameters:
    """A gradient on tokens → one on the learned tensors (for MaPLe, through the coupling).

    With `many`, it is one of each of several images, in rows, and so is the result.
    """
    with torch.enable_grad():
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        tokens = classifier.tokens(leaves)
    pairs = [
        (token, part)
        for token, part in ((tokens.text, gradient.text), (tokens.vision, gradient.vision))
        if token is not None and part is not None
    ]
    if not pairs:
        return {name: torch.zeros_like(value) for name, value in parameters.items()}
    outputs = [token for token, _ in pairs]
    parts = [part.to(token.dtype) for token, part in pairs]
    at_once = many and parts[0].is_cuda
    back = functools.partial(
        torch.autograd.grad if at_once else pull_back,
        outputs,
        list(leaves.values()),
        retain_graph=True,
        materialize_grads=True,
    )
    grads = _each(back, parts, at_once=at_once) if many else back(parts)
    return dict(zip(leaves, grads, strict=True))


def _each(
    back: Callable[[Sequence[Tensor]], Sequence[Tensor]], given: Sequence[Tensor], *, at_once: bool
) -> Sequence[Tensor]:
    """What each image's gradients, given in rows, come to, in rows: by one way back for all, or one each."""
    if at_once:
        return torch.vmap(lambda *upper: back(upper))(*given)  # type: ignore[no-any-return]
    return [torch.stack(rows) for rows in zip(*map(back, zip(*given, strict=True)), strict=True)]
