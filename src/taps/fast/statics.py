"""Tensors that never move: what recordings read from and write to."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from taps.classifier import Classifier
from taps.fast.tape import Tape
from taps.gradient import Gradient, Point
from taps.losses import cross_entropies
from taps.memory import Memory, differentiate, labelled_logits, leaves_of, stack_inputs


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
    """What the labelled memory adds to a recorded step, in place of the memory itself."""

    def __init__(self, point: Point) -> None:
        self.recent = StaticGradient(point.text, point.tokens.vision, point.text.dtype)
        self.known = StaticGradient(point.tokens.text, point.tokens.vision, torch.float64)

    def fresh(self, classifier: Classifier, point: Point) -> Gradient:
        return self.recent.value

    def constant(self) -> Gradient:
        return self.known.value


class Chunks:
    """The continual memory's gradient, chunk after chunk of one shape; the last is padded with weight 0."""

    def __init__(
        self, classifier: Classifier, point: Point, memory: Memory, example: Tensor, into: StaticGradient
    ) -> None:
        self.classifier, self.point, self.memory, self.into = classifier, point, memory, into
        device, size = point.text.device, even_chunk(memory.buffer.capacity, 2 * memory.chunk)
        self.size = size
        shape, dtype = example.shape, torch.uint8
        if point.tokens.vision is None:
            shape, dtype = point.text.shape[1:], point.text.dtype
        self.inputs = torch.zeros(size, *shape, dtype=dtype, device=device)
        self.labels = torch.zeros(size, dtype=torch.long, device=device)
        self.weights = torch.zeros(size, dtype=point.text.dtype, device=device)
        self.ids: tuple[int, ...] = ()
        self.every_label, self.every_weight = self.labels, self.weights

    def record(self, tape: Tape, lanes: int = 2) -> None:
        self.recording = tape.record(lambda: self._accumulate(tape, lanes))

    def accumulate(self) -> Callable[[], None]:
        """Launch every chunk; the function that comes back waits for the losses and notes them."""
        self.into.load(Gradient(None, None))
        entries, size = self.memory.buffer.entries(), self.size
        self._note_labels([entry.id for entry in entries], [entry.label for entry in entries])
        losses = torch.empty_like(self.every_weight)
        for start in range(0, len(entries), size):
            evidence = [entry.payload for entry in entries[start : start + size]]
            self.inputs[: len(evidence)].copy_(stack_inputs(evidence, self.point))
            self.labels.copy_(self.every_label[start : start + size])
            self.weights.copy_(self.every_weight[start : start + size])
            self.recording.replay()
            losses[start : start + size].copy_(self.recording.result)

        def note() -> None:
            self.memory.buffer.set_losses(losses[: len(entries)].tolist())

        return note

    def _note_labels(self, ids: list[int], labels: list[int]) -> None:
        """Send labels and weights to the device, when they changed."""
        if tuple(ids) == self.ids:
            return
        self.ids = tuple(ids)
        padding = -len(labels) % self.size
        share = self.memory.weight_ce / len(labels)
        every_weight = torch.tensor([share] * len(labels) + [0.0] * padding, dtype=self.weights.dtype)
        self.every_label = torch.tensor(labels + [0] * padding).to(self.labels.device)
        self.every_weight = every_weight.to(self.weights.device)

    def _accumulate(self, tape: Tape, lanes: int) -> Tensor:
        """One half beside the other: where one waits for memory, the other may compute."""
        half = -(-self.size // lanes)
        if half == self.size:
            gradient, losses = self._part(slice(None))
            self.into.add(gradient)
            return losses
        with tape.beside():
            gradient_b, losses_b = self._part(slice(half, None))
        gradient, losses = self._part(slice(half))
        tape.meet()
        self.into.add(gradient + gradient_b)
        return torch.cat([losses, losses_b])

    def _part(self, which: slice) -> tuple[Gradient, Tensor]:
        text, vision = leaves_of(self.point)
        with torch.enable_grad():
            logits = labelled_logits(self.classifier, self.inputs[which], text, vision)
            losses = cross_entropies(logits, self.labels[which])
            loss = (self.weights[which] * losses).sum()
        return differentiate(loss, text, vision), losses.detach()


def even_chunk(capacity: int, most: int) -> int:
    """The chunk that leaves a full memory the least padding.

    >>> even_chunk(150, 32)
    30
    """
    chunks = max(1, -(-capacity // most))
    return max(1, -(-capacity // chunks))
