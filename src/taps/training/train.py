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

from taps.clip import Clip
from taps.errors import DataError, PromptsError
from taps.prompts.base import Parameters, Prompts
from taps.prompts.choose import untrained
from taps.prompts.classifier import Classifier
from taps.prompts.classify import placed, prompt_classifier
from taps.training.crops import Images, check_images, crop_batches, in_batches
from taps.training.objective import IMAGE_FREE, batch_losses
from taps.training.progress import TrainingState, load_progress, save_progress
from taps.training.recipe import Recipe, learning_rate

ENCODE = 64  # images per forward where no gradient is taken


@dataclass(frozen=True)
class EpochProgress:
    """Where training stands after a batch; loss and accuracy are means over the epoch so far."""

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
        kind: coop, cocoop, maple or proda.
        recipe: The numbers, see `recipe_for`.
        indices: Which images, such as `taps.data.few_shot` picks; all of them when not given.
        seed: Start, order and crops follow from it.
        progress_file: Written after every epoch, so that training can be resumed.
        resume: Go on from that file: the result is the same as without the stop.
        report: Called after every batch.
    """
    chosen = list(range(len(images))) if indices is None else [int(index) for index in indices]
    labels = known_labels(images, chosen)
    check_images(images, chosen)
    start = untrained(clip, kind, torch.Generator().manual_seed(seed))
    trainer = Trainer(clip, images, chosen, labels, start, recipe, seed)
    identity = training_identity(clip, images, chosen, kind, recipe, seed)
    if resume and progress_file is not None:
        trainer.state = load_progress(progress_file, identity, trainer.state)
    while trainer.state.epoch < recipe.epochs:
        trainer.run_epoch(report)
        if progress_file is not None:
            save_progress(progress_file, identity, trainer.state)
    record = {**start.record, **identity, "history": trainer.state.history}
    return replace(start, parameters={k: v.cpu() for k, v in trainer.state.parameters.items()}, record=record)


class Trainer:
    """One training: it owns the learned tensors, the optimiser's velocity, and features that never change."""

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
        self.classifier = prompt_classifier(clip, images.classes, start)
        self.labels = torch.tensor(labels, device=clip.device)
        parameters = placed(start, self.classifier)
        velocity = {name: torch.zeros_like(value) for name, value in parameters.items()}
        self.state = TrainingState(parameters, velocity, epoch=0, history=[])
        self._features: dict[int, Tensor] = {}

    def run_epoch(self, report: Callable[[EpochProgress], None]) -> None:
        """Every image once, in an order of this epoch's own."""
        recipe, epoch = self.recipe, self.state.epoch
        lr = learning_rate(recipe, epoch)
        order = np.random.default_rng([self.seed % (1 << 64), epoch]).permutation(len(self.indices))
        batches = in_batches(order.tolist(), recipe.batch)
        total, right, seen = 0.0, 0, 0
        for number, (batch, inputs) in enumerate(zip(batches, self._inputs(batches), strict=True), 1):
            loss, correct = self._step(
                inputs, self.labels[torch.tensor(batch, device=self.labels.device)], lr
            )
            if not math.isfinite(loss):
                raise PromptsError(
                    f"The loss is not a finite number any more in epoch {epoch + 1} at learning rate {lr:g}; "
                    "train with a lower --lr."
                )
            total, right, seen = total + loss * len(batch), right + correct, seen + len(batch)
            report(EpochProgress(epoch, number, len(batches), total / seen, right / seen, lr))
        mean = {"loss": round(total / seen, 6), "accuracy": round(right / seen, 6), "lr": lr}
        self.state = replace(self.state, epoch=epoch + 1, history=[*self.state.history, mean])

    def _step(self, inputs: Tensor, labels: Tensor, lr: float) -> tuple[float, int]:
        leaves = {name: value.detach().requires_grad_() for name, value in self.state.parameters.items()}
        gradient = {name: torch.zeros_like(value) for name, value in leaves.items()}
        loss, logits = torch.zeros((), device=labels.device), []
        with mixed_precision(self.classifier):
            for part, part_logits in batch_losses(self.classifier, leaves, inputs, labels):
                grads = torch.autograd.grad(part, list(leaves.values()), allow_unused=True)
                for name, grad in zip(leaves, grads, strict=True):
                    gradient[name] = gradient[name] if grad is None else gradient[name] + grad
                loss = loss + part.detach()
                logits.append(part_logits.detach())
        self.state = sgd(self.state, gradient, lr, self.recipe)
        return float(loss), int((torch.cat(logits).argmax(dim=-1) == labels).sum())

    def _inputs(self, batches: list[Sequence[int]]) -> Iterator[Tensor]:
        """What the objective takes of each batch: constant image features, or images."""
        clip, epoch = self.classifier.clip, self.state.epoch
        draw = epoch % self.recipe.crops if self.recipe.crops else epoch
        if self.classifier.kind in IMAGE_FREE:
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


def sgd(state: TrainingState, gradient: Parameters, lr: float, recipe: Recipe) -> TrainingState:
    """One step of gradient descent with momentum and weight decay."""
    velocity = {
        name: recipe.momentum * state.velocity[name] + gradient[name] + recipe.weight_decay * value
        for name, value in state.parameters.items()
    }
    moved = {name: value - lr * velocity[name] for name, value in state.parameters.items()}
    return replace(state, parameters=moved, velocity=velocity)


def mixed_precision(classifier: Classifier) -> torch.autocast:
    """Half-precision products on a GPU; elsewhere everything as it is."""
    device = classifier.clip.device.type
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")


def known_labels(images: Images, indices: Sequence[int]) -> list[int]:
    labels, found = images.labels, []
    for index in indices:
        label = labels[index]
        if label is None:
            raise DataError(f"{images.name} has images without a label; training needs the class of each.")
        found.append(label)
    if not found:
        raise DataError(f"{images.name} has no images to train on.")
    return found


def training_identity(
    clip: Clip, images: Images, indices: Sequence[int], kind: str, recipe: Recipe, seed: int
) -> dict[str, Any]:
    """What a training is determined by; recorded with the prompts, and compared before resuming."""
    return {
        "kind": kind,
        "base": clip.fingerprint,
        "data": images.name,
        "classes": len(images.classes),
        "class_names": digest(images.classes),
        "images": len(indices),
        "samples": digest(indices),
        "seed": seed,
        **asdict(recipe),
    }


def digest(values: Sequence[object]) -> str:
    """A short name for a list."""
    return hashlib.sha256("\n".join(map(str, values)).encode()).hexdigest()[:16]
