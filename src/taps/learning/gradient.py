"""Gradients of the prompts: from text features and vision tokens back to the learned tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from taps.model.kernels.many import pull_back
from taps.model.prompts.classifier import Classifier
from taps.model.prompts.families import Parameters, PromptTokens


@dataclass(frozen=True)
class Gradient:
    """A gradient in two parts; either is None where there is nothing to differentiate."""

    text: Tensor | None  # of the text features [K, d] until it is pulled back, then of the context tokens
    vision: Tensor | None  # of the vision tokens

    def __add__(self, other: Gradient) -> Gradient:
        def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
            return b if a is None else a if b is None else a + b

        return Gradient(plus(self.text, other.text), plus(self.vision, other.vision))

    def __mul__(self, factor: float) -> Gradient:
        return self.map(lambda part: part * factor)

    def map(self, function: Callable[[Tensor], Tensor]) -> Gradient:
        """A function applied to each part that is there."""
        return Gradient(*(None if part is None else function(part) for part in (self.text, self.vision)))

    def is_finite(self) -> bool:
        return all(bool(part.isfinite().all()) for part in (self.text, self.vision) if part is not None)


NOTHING = Gradient(None, None)


@dataclass(frozen=True)
class Point:
    """Prompts at one value of their parameters, with the text features and their autograd graph."""

    parameters: Parameters
    tokens: PromptTokens  # what the parameters become (detached)
    text: Tensor  # normalised text features [K, d] (detached)
    graph: Tensor | None  # the same with their graph back to `context`; None where none was asked for
    context: Tensor | None  # the leaf

    def pull_back(self, gradient: Gradient) -> Gradient:
        """A gradient of text features → one of context tokens. The graph is kept and can be used again."""
        if gradient.text is None or self.graph is None or self.context is None:
            return Gradient(None, gradient.vision)
        (text,) = pull_back([self.graph], [self.context], [gradient.text], retain_graph=True)
        return Gradient(text, gradient.vision)

    def pull_back_each(self, gradient: Gradient, *, at_once: bool) -> Gradient:
        """The same for the gradients of B images [B, ...], in one backward (`at_once`) or one each."""
        if gradient.text is None or self.graph is None or self.context is None:
            return Gradient(None, gradient.vision)
        (text,) = _each([self.graph], [self.context], [gradient.text], at_once=at_once, retain_graph=True)
        return Gradient(text, gradient.vision)


def leaves_of(point: Point) -> tuple[Tensor, Tensor | None]:
    """Text features and vision tokens as leaves to differentiate at."""
    vision = point.tokens.vision
    return point.text.detach().requires_grad_(), None if vision is None else vision.detach().requires_grad_()


def differentiate(loss: Tensor, text: Tensor, vision: Tensor | None) -> Gradient:
    """The gradient of a loss at `leaves_of` a point."""
    if vision is None:
        return Gradient(torch.autograd.grad(loss, text)[0], None)
    return Gradient(*torch.autograd.grad(loss, [text, vision]))


def point_at(classifier: Classifier, parameters: Parameters, *, graph: bool = True) -> Point:
    """Encode the class texts at the given parameters; `graph` keeps the way back."""
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
    """A gradient of tokens → one of the learned tensors (for MaPLe, through the coupling).

    With `many`, gradient and result have a row for each of several images.
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
    inputs, options = list(leaves.values()), {"retain_graph": True, "materialize_grads": True}
    if many:
        grads = _each(outputs, inputs, parts, at_once=parts[0].is_cuda, **options)
    else:
        grads = pull_back(outputs, inputs, parts, **options)
    return dict(zip(leaves, grads, strict=True))


def _each(
    outputs: list[Tensor], inputs: list[Tensor], given: list[Tensor], *, at_once: bool, **options: bool
) -> Sequence[Tensor]:
    """Gradients of the inputs for several images whose gradients of the outputs are given, all in rows.

    `at_once` goes back once with all of them, else once for each.
    """
    if at_once:
        back = torch.vmap(lambda *upper: torch.autograd.grad(outputs, inputs, upper, **options))
        return back(*given)  # type: ignore[no-any-return]
    rows = [pull_back(outputs, inputs, upper, **options) for upper in zip(*given, strict=True)]
    return [torch.stack(parts) for parts in zip(*rows, strict=True)]
