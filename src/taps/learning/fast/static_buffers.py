"""Static buffers: tensors at fixed addresses that captured graphs read from and write to."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from taps.learning.fast.capture import GraphCapture
from taps.learning.gradient import Gradient, Point, differentiate, leaves_of
from taps.learning.losses import cross_entropies
from taps.learning.memory import Memory, ReplayItem, stack_inputs
from taps.model.prompts.classifier import Classifier

STREAMS = 2
"""Parts of a chunk that run at the same time, each on a stream of its own."""
TOKEN_BYTES = 1 << 28
"""Of a GPU's memory for the tokens of labelled images: about 900 images of ViT-B-16."""


class StaticGradient:
    """A gradient at a fixed place in memory."""

    def __init__(self, text: Tensor | None, vision: Tensor | None, dtype: torch.dtype) -> None:
        self.value = Gradient(
            *(None if part is None else torch.zeros_like(part, dtype=dtype) for part in (text, vision))
        )

    def load(self, gradient: Gradient) -> None:
        """Copy a gradient in; zero where it has nothing."""
        for mine, given in ((self.value.text, gradient.text), (self.value.vision, gradient.vision)):
            if mine is not None:
                mine.zero_() if given is None else mine.copy_(given)

    def add(self, gradient: Gradient) -> None:
        for mine, given in ((self.value.text, gradient.text), (self.value.vision, gradient.vision)):
            if mine is not None and given is not None:
                mine.add_(given)


class StaticMemory:
    """The labelled memory's part of the gradient, as a captured step reads it."""

    def __init__(self, point: Point) -> None:
        self.recent = StaticGradient(point.text, point.tokens.vision, point.text.dtype)
        self.known = StaticGradient(point.tokens.text, point.tokens.vision, torch.float64)

    def fresh(self, classifier: Classifier, point: Point) -> Gradient:
        return self.recent.value

    def constant(self) -> Gradient:
        return self.known.value


class Chunks:
    """The continual memory's gradient, chunk after chunk of one shape; the last is padded with weight 0.

    What the prompts have no part in, an image's tokens before the first block, is computed when the memory
    changes, and kept where `TOKEN_BYTES` hold it.
    """

    def __init__(
        self, classifier: Classifier, point: Point, memory: Memory, example: Tensor, into: StaticGradient
    ) -> None:
        self.classifier, self.point, self.memory, self.into = classifier, point, memory, into
        device, capacity = point.text.device, memory.buffer.capacity
        self.size = size = even_chunk(capacity, STREAMS * memory.chunk)
        self.half = -(-size // STREAMS)
        shape, dtype = point.text.shape[1:], point.text.dtype
        if point.tokens.vision is not None:
            blank = classifier.clip.preprocess(torch.zeros(1, *example.shape, dtype=torch.uint8))
            made = classifier.clip.image_tokens(blank)
            shape, dtype = made.shape[1:], made.dtype
        self.inputs = torch.zeros(size, *shape, dtype=dtype, device=device)
        self.labels = torch.zeros(size, dtype=torch.long, device=device)
        self.weights = torch.zeros(size, dtype=point.text.dtype, device=device)
        self.entries: list[tuple[ReplayItem, int]] = []
        self.every_label, self.every_weight = self.labels, self.weights
        self.every_input: Tensor | None = None
        if (chunks := -(-capacity // size)) * self.inputs.nbytes <= TOKEN_BYTES:
            self.every_input = self.inputs.new_zeros(chunks * size, *shape)

    def capture(self, graphs: GraphCapture) -> None:
        self.both = graphs.capture(lambda: self._both(graphs))
        self.first = graphs.capture(self._first)

    def accumulate(self) -> Callable[[], None]:
        """Launch every chunk; the function that comes back waits for the losses and notes them."""
        self.into.load(Gradient(None, None))
        entries, size = self.memory.buffer.entries(), self.size
        self._note([(entry.payload, entry.label) for entry in entries])
        losses = torch.empty_like(self.every_weight)
        for start in range(0, len(entries), size):
            if self.every_input is not None:
                self.inputs.copy_(self.every_input[start : start + size])
            else:
                self._prepare(start, self.inputs)
            self.labels.copy_(self.every_label[start : start + size])
            self.weights.copy_(self.every_weight[start : start + size])
            graph = self.both if len(entries) - start > self.half else self.first
            graph.replay()
            losses[start : start + len(graph.result)].copy_(graph.result)

        def note() -> None:
            self.memory.buffer.set_losses(losses[: len(entries)].tolist())

        return note

    def _note(self, entries: list[tuple[ReplayItem, int]]) -> None:
        """Send to the device what it must know of the entries, when they changed."""
        if len(entries) == len(self.entries) and all(
            mine[0] is given[0] and mine[1] == given[1]
            for mine, given in zip(self.entries, entries, strict=True)
        ):
            return
        self.entries = entries
        padding = -len(entries) % self.size
        share = self.memory.weight_ce / len(entries)
        every_weight = torch.tensor([share] * len(entries) + [0.0] * padding, dtype=self.weights.dtype)
        every_label = torch.tensor([label for _, label in entries] + [0] * padding)
        self.every_label = every_label.to(self.labels.device)
        self.every_weight = every_weight.to(self.weights.device)
        if self.every_input is not None:
            for start in range(0, len(entries), self.size):
                self._prepare(start, self.every_input[start : start + self.size])

    @torch.no_grad()
    def _prepare(self, start: int, into: Tensor) -> None:
        """What one chunk is classified from: tokens, or features where prompts leave images alone."""
        item = [payload for payload, _ in self.entries[start : start + self.size]]
        inputs = stack_inputs(item, self.point)
        if self.point.tokens.vision is not None:
            inputs = self.classifier.clip.image_tokens(self.classifier.clip.preprocess(inputs))
        into[: len(item)].copy_(inputs)

    def _both(self, graphs: GraphCapture) -> Tensor:
        """Both halves on two streams: where one waits for memory, the other may compute."""
        if self.half == self.size:
            return self._first()
        with graphs.side_stream():
            second, second_losses = self._part(slice(self.half, None))
        gradient, losses = self._part(slice(self.half))
        graphs.join()
        self.into.add(gradient + second)
        return torch.cat([losses, second_losses])

    def _first(self) -> Tensor:
        """The first half alone, for the few that are left over."""
        gradient, losses = self._part(slice(self.half))
        self.into.add(gradient)
        return losses

    def _part(self, which: slice) -> tuple[Gradient, Tensor]:
        text, vision = leaves_of(self.point)
        with torch.enable_grad():
            features = self.inputs[which]
            if vision is not None:
                features = self.classifier.image(features, vision)
            losses = cross_entropies(self.classifier.logits(features, text), self.labels[which])
            loss = (self.weights[which] * losses).sum()
        return differentiate(loss, text, vision), losses.detach()


def even_chunk(capacity: int, most: int) -> int:
    """The chunk that leaves a full memory the least padding.

    >>> even_chunk(150, 32)
    30
    """
    chunks = max(1, -(-capacity // most))
    return max(1, -(-capacity // chunks))
