"""SimATTA (Gui et al., ICLR 2024): layer norms learn from answers and from pseudo-labelled sure images.

With `together` it asks as its authors do, at the end of a batch and by clusters:

    for image in images:
        learner.predict_one(image)
        for id in learner.method.choose():
            learner.ask(id)  # `learner.learn_one(id, label)` once the answer is there
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.learning.losses import entropies
from taps.learning.memory import check_item
from taps.learning.optimiser import all_finite, fresh_moments
from taps.methods import Asking, MethodOutput, ReplayItem, Snapshot, method, reset_setting, setting
from taps.model.clip import Clip
from taps.model.prompts.families import Parameters
from taps.rivals.clustering import questions
from taps.rivals.tower import TowerSettings, TowerTuner
from taps.saved import check_plain, real, whole

Images = dict[int, tuple[Tensor, int]]  # pixels of view 0 and the label, by the image's number
KINDS = ("labelled", "sure", "unsure")
MOMENTUM = 0.9
CLUSTERS = 10  # of the first batch


class SimAttaSettings(Asking, TowerSettings):
    """SimATTA's values for PACS, fewer steps.

    Attributes:
        steps: Steps of SGD for each answer, or for those of a batch together.
        batch: Labelled images, and as many sure ones, in a step.
        buffer: Labelled images kept, the last ones.
        sure: Sure images kept, the last ones.
        sure_below: Entropy in nats below which an image is sure.
        together: Images of a batch, at whose end `choose` says which of them to ask about; 0 where each image
            is decided on when it comes.
        unsure_from: Entropy in nats from which an image of a batch may be asked about.
    """

    policy: str = "paced"
    views: int = 1
    reset: str = reset_setting("never")
    steps: int = setting(10, at_least=1)
    batch: int = setting(16, at_least=1)
    buffer: int = setting(150, at_least=1)
    sure: int = setting(50, at_least=1)
    sure_below: float = setting(1e-4, at_least=0)
    together: int = setting(0, at_least=0)
    unsure_from: float = setting(0.01, at_least=0)


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
        self.unsure: Images = {}  # of the present batch; their labels are not known
        self.weights_of: dict[int, float] = {}  # of labelled images that were chosen
        self.open: list[int] = []  # chosen and not answered
        self.chosen = 0  # images seen when `choose` was called last

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
        if output.entropy >= self.settings.unsure_from:
            keep(self.unsure, self.seen - 1, pixels, -1, self.settings.together)
        return replace(output, item=ReplayItem(pixels, None, feature[0]), updated=False)

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        assert item.pixels is not None
        keep(self.labelled, id, item.pixels, label, self.settings.buffer)
        self.open = [each for each in self.open if each != id]
        if not self.open:
            self.train()

    def choose(self) -> list[int]:
        """Images to ask about now that a batch has ended (`learner.ask`); none while it lasts.

        Once all of them are answered, the answers are learned together. What is left open at the next call is
        not waited for.
        """
        together = self.settings.together
        if not together or self.seen % together or self.chosen == self.seen:
            return []
        if self.open:
            self.train()
        self.chosen, ids = self.seen, list(self.unsure)
        known = list(self.labelled)
        weights = self.text.new_tensor([self.weights_of.get(id, 1.0) for id in known])
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.seen)
        clusters = CLUSTERS + self.seen // together - 1  # one more with every batch
        found = questions(
            self.features(self.labelled), weights, self.features(self.unsure), clusters, generator
        )
        self.open, self.unsure = [ids[place] for place in found[0]], {}
        self.weights_of = dict(zip([*known, *self.open], [*found[2].tolist(), *found[1]], strict=True))
        if not self.open:
            self.train()
        return list(self.open)

    @torch.no_grad()
    def features(self, images: Images) -> Tensor:
        """Features of images by the tower as it is now [n, d]."""
        found = [self.text[:0]]
        for pixels, _ in images.values():
            seen = self.classifier.clip.preprocess(pixels[None].to(self.text.device))
            found.append(self.encode(self.parameters, seen))
        return torch.cat(found)

    def train(self) -> None:
        """Steps of SGD with a velocity of 0 at first, as its authors make a new optimiser each time."""
        if not self.labelled:
            return
        self.rounds, self.open = self.rounds + 1, []
        self.moments = fresh_moments(self.start)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.rounds)
        for _ in range(self.settings.steps):
            gradients = self.by_labels(generator)
            if not bool(all_finite(gradients)):
                self.skipped_updates += 1
                return
            self.sgd_step(gradients, MOMENTUM)

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
        self.weights_of.pop(id, None)

    def remembers(self, id: int) -> bool:
        return id in self.labelled

    def summary(self) -> dict[str, Any]:
        return super().summary() | {"labelled": len(self.labelled), "sure": len(self.sure)}

    def snapshot(self) -> Snapshot:
        found = super().snapshot()
        kinds = {kind: getattr(self, kind) for kind in KINDS}
        pixels = {
            f"{kind}.{id}": image for kind, images in kinds.items() for id, (image, _) in images.items()
        }
        labels = {kind: [[id, label] for id, (_, label) in images.items()] for kind, images in kinds.items()}
        batch = {"weights": list(self.weights_of.items()), "open": self.open, "chosen": self.chosen}
        return Snapshot(found.tensors | pixels, found.values | labels | batch)

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        values: dict[str, Any] = {"unsure": [], "weights": [], "open": [], "chosen": 0} | snapshot.values
        batch: dict[str, Any] = {"weights": [(whole(), real(0))], "open": [whole()], "chosen": whole()}
        kept = {kind: [(whole(), whole(len(self.text) - 1, -1))] for kind in KINDS}
        check_plain(values, kept | batch, "method")
        self.labelled, self.sure, self.unsure = (
            {id: (snapshot.tensors[f"{kind}.{id}"], label) for id, label in values[kind]} for kind in KINDS
        )
        for kind in KINDS:
            for pixels, label in getattr(self, kind).values():
                self.check_item(ReplayItem(pixels, None, pixels))
                check_plain(label, whole(len(self.text) - 1, -1 if kind == "unsure" else 0), kind)
        self.weights_of = dict(values["weights"])
        self.open, self.chosen = list(values["open"]), values["chosen"]

    def check_item(self, item: ReplayItem) -> None:
        size = self.classifier.clip.config.image_size
        check_item(item, torch.uint8, pixels=(3, size, size))


def keep(images: Images, id: int, pixels: Tensor, label: int, most: int) -> None:
    """Add an image; where there are too many, drop the oldest."""
    images[id] = (pixels, label)
    while len(images) > most:
        del images[next(iter(images))]
