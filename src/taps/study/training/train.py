"""Training prompts on a few images of each class; after every epoch it can be stopped and resumed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from taps.errors import DataError, PromptsError
from taps.files import write_tensors
from taps.methods.base import with_prefix
from taps.model.clip import Clip
from taps.model.prompts.base import Prompts
from taps.model.prompts.choose import untrained
from taps.model.prompts.classifier import Classifier
from taps.model.prompts.classify import placed, prompt_classifier
from taps.model.prompts.families import FAMILIES, Recipe
from taps.study.training.passes import Images, check_images, crop_batches, in_batches, read_unfinished
from taps.study.training.recipe import learning_rate

ENCODE = 64  # images per forward where no gradient is taken


@dataclass(frozen=True)
class EpochProgress:
    """Progress after a batch; loss and accuracy are means over the epoch so far."""

    epoch: int
    batch: int
    batches: int
    loss: float
    accuracy: float
    lr: float


def train_prompts(
    clip: Clip,
    images: Images,
    kind: str,
    recipe: Recipe,
    *,
    indices: Sequence[int] | None = None,
    seed: int = 0,
    progress_file: Path | None = None,
    resume: bool = False,
    report: Callable[[EpochProgress], None] = lambda progress: None,
) -> Prompts:
    """Train prompts of a family.

    Args:
        clip: The frozen model.
        images: A labelled data set.
        kind: The family: coop, cocoop, maple, proda, or one of a plugin.
        recipe: The numbers, see `recipe_for`.
        indices: Which images, such as `taps.data.few_shot` picks; all of them when not given.
        seed: Of the start, the order and the crops.
        progress_file: Written after every epoch, so that training can be resumed.
        resume: Continue from that file: the result is the same as without the stop.
        report: Called after every batch.
    """
    chosen = list(range(len(images))) if indices is None else [int(index) for index in indices]
    labels = _known_labels(images, chosen)
    check_images(images, chosen)
    start = untrained(clip, kind, torch.Generator().manual_seed(seed))
    trainer = Trainer(clip, images, chosen, labels, start, recipe, seed)
    # What a training is determined by; recorded with the prompts, and compared before resuming.
    identity = {
        "kind": kind,
        "base": clip.fingerprint,
        "data": images.name,
        "classes": len(images.classes),
        "class_names": _digest(images.classes),
        "images": len(chosen),
        "samples": _digest(chosen),
        "seed": seed,
        **asdict(recipe),
    }
    if resume and progress_file is not None and progress_file.exists():
        trainer.load(progress_file, identity)
    while trainer.epoch < recipe.epochs:
        trainer.run_epoch(report)
        if progress_file is not None:
            trainer.save(progress_file, identity)
    record = {**start.record, **identity, "history": trainer.history}
    return replace(start, parameters={k: v.cpu() for k, v in trainer.parameters.items()}, record=record)


class Trainer:
    """One training: the learned tensors, the optimiser's velocity, and image features that do not change."""

    def __init__(
        self,
        clip: Clip,
        images: Images,
        indices: list[int],
        labels: list[int],
        start: Prompts,
        recipe: Recipe,
        seed: int,
    ) -> None:
        self.images, self.indices, self.recipe, self.seed = images, indices, recipe, seed
        self.family = FAMILIES[start.kind]
        self.classifier = prompt_classifier(clip, images.classes, start)
        self.labels = torch.tensor(labels, device=clip.device)
        self.parameters = placed(start, self.classifier)
        self.velocity = {name: torch.zeros_like(value) for name, value in self.parameters.items()}
        self.epoch = 0
        self.history: list[dict[str, float]] = []
        self._features: dict[int, Tensor] = {}

    def run_epoch(self, report: Callable[[EpochProgress], None]) -> None:
        """Every image once, in an order of this epoch's own."""
        lr = learning_rate(self.recipe, self.epoch)
        order = np.random.default_rng([self.seed % (1 << 64), self.epoch]).permutation(len(self.indices))
        batches = in_batches(order.tolist(), self.recipe.batch)
        total, right, seen = 0.0, 0, 0
        for number, (batch, inputs) in enumerate(zip(batches, self._inputs(batches), strict=True), 1):
            labels = self.labels[torch.tensor(batch, device=self.labels.device)]
            loss, correct = self._step(inputs, labels, lr)
            if not math.isfinite(loss):
                raise PromptsError(
                    f"The loss is not a finite number any more in epoch {self.epoch + 1} at learning rate "
                    f"{lr:g}; train with a lower --lr."
                )
            total, right, seen = total + loss * len(batch), right + correct, seen + len(batch)
            report(EpochProgress(self.epoch, number, len(batches), total / seen, right / seen, lr))
        self.epoch += 1
        mean = {"loss": round(total / seen, 6), "accuracy": round(right / seen, 6), "lr": lr}
        self.history.append(mean)

    def _step(self, inputs: Tensor, labels: Tensor, lr: float) -> tuple[float, int]:
        """One step of gradient descent with momentum and weight decay; the loss, and how many were right."""
        leaves = {name: value.detach().requires_grad_() for name, value in self.parameters.items()}
        gradient = {name: torch.zeros_like(value) for name, value in leaves.items()}
        loss, logits = torch.zeros((), device=labels.device), []
        with mixed_precision(self.classifier):
            for part, part_logits in self.family.losses(self.classifier, leaves, inputs, labels):
                grads = torch.autograd.grad(part, list(leaves.values()), allow_unused=True)
                for name, grad in zip(leaves, grads, strict=True):
                    gradient[name] = gradient[name] if grad is None else gradient[name] + grad
                loss = loss + part.detach()
                logits.append(part_logits.detach())
        momentum, decay = self.recipe.momentum, self.recipe.weight_decay
        for name, value in self.parameters.items():
            self.velocity[name] = momentum * self.velocity[name] + gradient[name] + decay * value
            self.parameters[name] = value - lr * self.velocity[name]
        return float(loss), int((torch.cat(logits).argmax(dim=-1) == labels).sum())

    def _inputs(self, batches: list[Sequence[int]]) -> Iterator[Tensor]:
        """The inputs of the family's `losses` for each batch: constant image features, or images."""
        clip = self.classifier.clip
        draw = self.epoch % self.recipe.crops if self.recipe.crops else self.epoch
        if not self.family.vision:
            features = self._features_of(draw)
            yield from (features[torch.tensor(batch, device=clip.device)] for batch in batches)
            return
        own = [[self.indices[place] for place in batch] for batch in batches]
        for pixels in crop_batches(self.images, own, size=clip.config.image_size, seed=self.seed, draw=draw):
            yield clip.preprocess(pixels)

    def _features_of(self, draw: int) -> Tensor:
        if draw not in self._features:
            if not self.recipe.crops:
                self._features.clear()  # they will not come back
            clip, batches = self.classifier.clip, in_batches(self.indices, ENCODE)
            crops = crop_batches(self.images, batches, size=clip.config.image_size, seed=self.seed, draw=draw)
            with torch.no_grad(), mixed_precision(self.classifier):
                parts = [self.classifier.image(clip.preprocess(pixels), None) for pixels in crops]
            self._features[draw] = torch.cat(parts)
        return self._features[draw]

    def save(self, path: Path, identity: dict[str, Any]) -> None:
        """Write everything that the next epoch depends on; the file is replaced as a whole."""
        tensors = with_prefix("parameters.", self.parameters) | with_prefix("velocity.", self.velocity)
        write_tensors(path, tensors, {"identity": identity, "epoch": self.epoch, "history": self.history})

    def load(self, path: Path, identity: dict[str, Any]) -> None:
        """Continue from the file that `save` wrote."""
        tensors, meta = read_unfinished(path, identity, "training")
        for name, value in self.parameters.items():
            self.parameters[name] = tensors[f"parameters.{name}"].to(value)
            self.velocity[name] = tensors[f"velocity.{name}"].to(value)
        self.epoch, self.history = meta["epoch"], meta["history"]


def mixed_precision(classifier: Classifier) -> torch.autocast:
    """Half-precision products on a GPU; no change elsewhere."""
    device = classifier.clip.device.type
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


def _known_labels(images: Images, indices: Sequence[int]) -> list[int]:
    every = images.labels
    labels = [label for index in indices if (label := every[index]) is not None]
    if len(labels) < len(indices):
        raise DataError(f"{images.name} has images without a label; training needs the class of each.")
    if not labels:
        raise DataError(f"{images.name} has no images to train on.")
    return labels


def _digest(values: Sequence[object]) -> str:
    return hashlib.sha256("\n".join(map(str, values)).encode()).hexdigest()[:16]
