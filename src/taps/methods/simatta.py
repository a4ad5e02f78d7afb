"""SimATTA (Gui et al., ICLR 2024): layer norms learn from answers and from pseudo-labelled sure images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.adapt.losses import entropies
from taps.clip import Clip
from taps.methods import Asking, MethodOutput, ReplayItem, Snapshot, method, reset_setting, setting
from taps.methods.tower import TowerSettings, TowerTuner
from taps.prompts.base import Parameters

Images = dict[int, tuple[Tensor, int]]  # pixels of view 0 and the label, by the image's number


class SimAttaSettings(Asking, TowerSettings):
    """SimATTA's values, fewer steps.

    Attributes:
        steps: Steps for each answer.
        batch: Labelled images, and as many sure ones, in a step.
        buffer: Labelled images kept, the last ones.
        sure: Sure images kept, the last ones.
        sure_below: Entropy in nats below which an image is sure.
    """

    policy: str = "paced"
    views: int = 1
    reset: str = reset_setting("never")
    steps: int = setting(10, at_least=1)
    batch: int = setting(16, at_least=1)
    buffer: int = setting(150, at_least=1)
    sure: int = setting(50, at_least=1)
    sure_below: float = setting(0.01, at_least=0)


@method("simatta", SimAttaSettings)
class SimAtta(TowerTuner):
    asks = True
    settings: SimAttaSettings
    saved = (*TowerTuner.saved, "rounds")

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: SimAttaSettings, seed: int) -> None:
        super().__init__(clip, classes, settings, seed)
        self.seed, self.rounds = seed, 0
        self.labelled: Images = {}
        self.sure: Images = {}

    def adapt(self, images: Tensor) -> tuple[float, bool]:
        """Nothing is learned without a label."""
        with torch.no_grad():
            return float(entropies(self.logits(self.parameters, images[:1]))[0]), True

    def predict(self, views: Tensor) -> MethodOutput:
        output = super().predict(views)
        pixels = views[0].to(torch.uint8, copy=True)
        with torch.no_grad():
            images = self.classifier.clip.preprocess(views[:1])
            feature = self.classifier.image(images, None)
            logits = self.classifier.logits(feature, self.text)
        if float(entropies(logits)[0]) < self.settings.sure_below:
            keep(self.sure, self.seen - 1, pixels, int(logits.argmax()), self.settings.sure)
        return replace(output, item=ReplayItem(pixels, None, feature[0]), updated=False)

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        assert item.pixels is not None
        keep(self.labelled, id, item.pixels, label, self.settings.buffer)
        self.rounds += 1
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.rounds)
        for _ in range(self.settings.steps):
            if not self.adamw_step(self.by_labels(generator)):
                self.skipped_updates += 1
                return

    def by_labels(self, generator: torch.Generator) -> Parameters:
        """Gradient of the cross-entropies of both kinds of images, weighted by how many there are."""
        leaves = {name: value.detach().requires_grad_() for name, value in self.parameters.items()}
        total = len(self.labelled) + len(self.sure)
        with torch.enable_grad():
            loss = self.text.new_zeros(())
            for images in filter(None, (self.labelled, self.sure)):
                pixels, labels = self.draw(images, generator)
                logits = self.logits(leaves, self.classifier.clip.preprocess(pixels))
                loss = loss + len(images) / total * F.cross_entropy(logits, labels)
            found = torch.autograd.grad(loss, list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    def draw(self, images: Images, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        held = list(images.values())
        picked = torch.randperm(len(held), generator=generator)[: self.settings.batch].tolist()
        device = self.text.device
        pixels = torch.stack([held[place][0].to(device) for place in picked])
        return pixels, torch.tensor([held[place][1] for place in picked], device=device)

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        """The image is learned from no more; steps that were taken because of it stay."""
        self.labelled.pop(id, None)

    def remembers(self, id: int) -> bool:
        return id in self.labelled

    def summary(self) -> dict[str, Any]:
        return super().summary() | {"labelled": len(self.labelled), "sure": len(self.sure)}

    def snapshot(self) -> Snapshot:
        found = super().snapshot()
        kinds = {"labelled": self.labelled, "sure": self.sure}
        pixels = {
            f"{kind}.{id}": image for kind, images in kinds.items() for id, (image, _) in images.items()
        }
        labels = {kind: [[id, label] for id, (_, label) in images.items()] for kind, images in kinds.items()}
        return Snapshot(found.tensors | pixels, found.values | labels)

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        self.labelled, self.sure = (
            {id: (snapshot.tensors[f"{kind}.{id}"], label) for id, label in snapshot.values[kind]}
            for kind in ("labelled", "sure")
        )


def keep(images: Images, id: int, pixels: Tensor, label: int, most: int) -> None:
    """Add an image; where there are too many, drop the oldest."""
    images[id] = (pixels, label)
    while len(images) > most:
        del images[next(iter(images))]
