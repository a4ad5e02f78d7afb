"""The labelled memory: what its images add to the gradient of a step.

Episodic (prompts restart at θ0 for every image): an image's gradient is a constant, computed once when its
label arrives. The memory keeps the sum, so a step costs the same however many labels there are.
Continual: the images are run again at the current prompts, chunk by chunk, in constant memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from taps.asking.buffer import Buffer, Entry
from taps.learning.alignment import Alignment
from taps.learning.gradient import NOTHING, Gradient, Point, differentiate, leaves_of
from taps.learning.losses import cross_entropies
from taps.model.prompts.classifier import Classifier
from taps.saved import Shape, check_arrays, check_features

DEVICE_BYTES = 1 << 29  # of a GPU's memory for labelled pixels: about 3,500 images of 224 pixels


@dataclass(frozen=True)
class ReplayItem:
    """What is kept of an image while it waits for a label, and after."""

    pixels: Tensor | None  # view 0, 0..255 [3, S, S]; None once it is not needed any more
    views: Tensor | None  # for the statistics of fine alignment, where that is on
    feature: Tensor  # normalised image feature at the loaded prompts [d]
    gradient: Gradient | None = None  # its constant share of the memory's gradient (episodic)
    beliefs: Tensor | None = None  # predictions made before its label came, in rows


class Labelled(Protocol):
    """The gradient of labelled images, as the step needs it."""

    def fresh(self, classifier: Classifier, point: Point) -> Gradient:
        """Of text features and vision tokens, at the prompts of this step."""
        ...

    def constant(self) -> Gradient:
        """Of tokens, known beforehand."""
        ...


@dataclass(frozen=True)
class Known:
    """Labelled images whose whole gradient is known beforehand."""

    gradient: Gradient

    def fresh(self, classifier: Classifier, point: Point) -> Gradient:
        return NOTHING

    def constant(self) -> Gradient:
        return self.gradient


@dataclass(eq=False)
class Memory:
    """The labelled images and their loss: the mean of weight_ce · CE + weight_fine · L_fine."""

    buffer: Buffer  # which images it holds, and which it evicts (Algorithm 2)
    _: KW_ONLY
    anchor: Point | None  # the loaded prompts θ0 for an episodic memory; None for a continual one
    weight_ce: float  # α
    weight_fine: float = 0.0  # γ
    alignment: Alignment | None = None  # needed where γ is not 0
    chunk: int = 32  # images per forward in a continual memory
    # Summed in double precision, so that adding and removing thousands of images leaves no trace.
    total: Gradient = field(default=NOTHING, init=False)

    def insert(
        self,
        classifier: Classifier,
        point: Point,
        id: int,
        label: int,
        item: ReplayItem,
        *,
        captured: Callable[[ReplayItem, int], tuple[Gradient, float]] | None = None,
    ) -> Entry | None:
        """Add an answered sample; returns the one that is evicted for it.

        `captured` computes the sample's gradient and loss as a captured graph, where there is one.
        """
        if captured is not None:
            gradient, loss = captured(item, label)
        else:
            gradient, loss = self.sample_gradient(classifier, self.anchor or point, item, label)
        if not gradient.is_finite():  # in the sum it would stay for ever
            gradient = gradient.map(torch.zeros_like)
        if self.anchor is not None:
            item = ReplayItem(pixels=None, views=None, feature=item.feature, gradient=gradient)
        elif item.pixels is not None:
            others, device = len(self.buffer), point.text.device
            views = None if item.views is None else _housed(item.views.to(device), others)
            item = replace(item, pixels=_housed(item.pixels, others), views=views)
        evicted = self.buffer.add(id, label, loss, item)
        if self.anchor is not None:
            if self.buffer.capacity > 0:
                self.total = self.total + gradient.map(Tensor.double)
            if evicted is not None and evicted.payload.gradient is not None:
                self.total = self.total + evicted.payload.gradient.map(Tensor.double) * -1.0
        return evicted

    def remove(self, id: int) -> Entry | None:
        """Take an answer back; None where it was evicted before. What was evicted for it does not return."""
        if id not in self.buffer:
            return None
        entry = self.buffer.remove(id)
        if not len(self.buffer):
            self.total = NOTHING
        elif entry.payload.gradient is not None:
            self.total = self.total + entry.payload.gradient.map(Tensor.double) * -1.0
        return entry

    def constant(self) -> Gradient:
        """Mean gradient of tokens in an episodic memory; nothing in a continual one."""
        if self.anchor is None or not len(self.buffer):
            return NOTHING
        return self.total * (1 / len(self.buffer))

    def fresh(self, classifier: Classifier, point: Point) -> Gradient:
        """Mean gradient of text features and vision tokens at the current prompts; nothing if episodic.

        Also updates the losses by which Algorithm 2 evicts: those at the prompts before this step's update.
        """
        if self.anchor is not None or not len(self.buffer):
            return NOTHING
        total, losses = NOTHING, []
        entries = self.buffer.entries()
        for start in range(0, len(entries), self.chunk):
            chunk = entries[start : start + self.chunk]
            part, values = self._chunk_gradient(classifier, point, chunk, len(entries))
            total = total + part
            losses.append(values)
        self.buffer.set_losses(torch.cat(losses).tolist())
        return total

    def _chunk_gradient(
        self, classifier: Classifier, point: Point, entries: list[Entry], size: int
    ) -> tuple[Gradient, Tensor]:
        labels = torch.tensor([entry.label for entry in entries], device=point.text.device)
        text, vision = leaves_of(point)
        with torch.enable_grad():
            inputs = stack_inputs([entry.payload for entry in entries], point)
            losses = cross_entropies(labelled_logits(classifier, inputs, text, vision), labels)
            loss = self.weight_ce * losses.sum() / size
            for entry in entries if self.weight_fine else ():
                fine = self._fine_loss(classifier, vision, entry.payload, entry.label)
                loss = loss + self.weight_fine / size * fine
        return differentiate(loss, text, vision), losses.detach()

    def sample_gradient(
        self, classifier: Classifier, point: Point, item: ReplayItem, label: int
    ) -> tuple[Gradient, float]:
        """One sample's gradient of tokens (pulled back through the text tower) and its cross-entropy."""
        text, vision = leaves_of(point)
        target = torch.tensor([label], device=text.device)
        with torch.enable_grad():
            inputs = stack_inputs([item], point)
            cross_entropy = cross_entropies(labelled_logits(classifier, inputs, text, vision), target).sum()
            if self.anchor is None:  # continual: every step computes the gradient again
                return NOTHING, float(cross_entropy.detach())
            loss = self.weight_ce * cross_entropy
            if self.weight_fine:
                loss = loss + self.weight_fine * self._fine_loss(classifier, vision, item, label)
        return point.pull_back(differentiate(loss, text, vision)), float(cross_entropy.detach())

    def _fine_loss(
        self, classifier: Classifier, vision: Tensor | None, item: ReplayItem, label: int
    ) -> Tensor:
        """L_fine: statistics over the sample's own views against those of its class in the source set."""
        assert self.alignment is not None
        images = classifier.clip.preprocess(_present(item.views).to(classifier.clip.device))
        inputs = self.alignment.inputs(classifier, images, vision)
        return self.alignment.loss(inputs, self.alignment.fine[label])

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors to save, by name."""
        for part in ("text", "vision"):
            if (value := getattr(self.total, part)) is not None:
                yield f"total.{part}", value
        for index, entry in enumerate(self.buffer.entries()):
            yield from replay_item_tensors(f"entry.{index}", entry.payload)


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


def replay_item_tensors(prefix: str, item: ReplayItem) -> Iterator[tuple[str, Tensor]]:
    """The tensors of one replay item, by name."""
    gradient = item.gradient or NOTHING
    named = {
        "pixels": item.pixels,
        "views": item.views,
        "feature": item.feature,
        "gradient.text": gradient.text,
        "gradient.vision": gradient.vision,
        "beliefs": item.beliefs,
    }
    yield from ((f"{prefix}.{name}", value) for name, value in named.items() if value is not None)


def replay_item_from(prefix: str, tensors: dict[str, Tensor]) -> ReplayItem:
    """The inverse of `replay_item_tensors`."""
    text, vision = tensors.get(f"{prefix}.gradient.text"), tensors.get(f"{prefix}.gradient.vision")
    return ReplayItem(
        pixels=tensors.get(f"{prefix}.pixels"),
        views=tensors.get(f"{prefix}.views"),
        feature=tensors[f"{prefix}.feature"],
        gradient=None if text is None and vision is None else Gradient(text, vision),
        beliefs=tensors.get(f"{prefix}.beliefs"),
    )


def check_item(item: ReplayItem, kind: torch.dtype, **wanted: Shape) -> None:
    """Refuse an item that lacks some of its tensors, or has others than these, all of one type."""
    held = {name: value for name, value in vars(item).items() if isinstance(value, Tensor)}
    check_arrays(held, wanted, kind=str(kind).removeprefix("torch."))
    if "feature" in wanted:
        check_features("what is kept of an image", item.feature)


def stack_inputs(items: Sequence[ReplayItem], point: Point) -> Tensor:
    """What labelled images are classified from: pixels, or features under text-only prompts."""
    if point.tokens.vision is None:
        return torch.stack([each.feature for each in items])
    return torch.stack([_present(each.pixels).to(point.text.device, non_blocking=True) for each in items])


def labelled_logits(classifier: Classifier, inputs: Tensor, text: Tensor, vision: Tensor | None) -> Tensor:
    """Logits of what `stack_inputs` made."""
    if vision is not None:
        inputs = classifier.image(classifier.clip.preprocess(inputs), vision)
    return classifier.logits(inputs, text)


def on_host(item: ReplayItem) -> ReplayItem:
    """The same with its views in host memory: a question may wait long, and views take much."""
    return item if item.views is None else replace(item, views=item.views.cpu())


def views_bytes(item: Any) -> int:
    return 0 if item.views is None else int(item.views.nbytes)


def _housed(pixels: Tensor, others: int) -> Tensor:
    """Pixels on the GPU while they are few; beyond `DEVICE_BYTES` in pinned host memory."""
    if not pixels.is_cuda or (others + 1) * pixels.nbytes <= DEVICE_BYTES:
        return pixels
    return torch.empty_like(pixels, device="cpu", pin_memory=True).copy_(pixels)


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor
