"""ECALP: labels spread over a graph of class texts, the last images, and images with an answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.adapt.memory import ReplayItem
from taps.methods.features import FeatureMethod, Seen, State
from taps.methods.ranges import setting
from taps.methods.registry import method
from taps.methods.settings import Asking, TextSettings

KEPT = 0.2  # share of an image's top score that it starts the next round with
TINY = 1e-9  # weight of zero-shot where nothing reached the image


@dataclass(frozen=True)
class EcalpSettings(TextSettings):
    """ECALP's published values.

    Attributes:
        memory: How many of the last images are in the graph; ECALP has all of them.
        near_texts: Edges of an image to texts.
        near_images: Edges of an image to images, itself included.
        near_labelled: Edges of an image to labelled images.
        power: γ, to which cosines are raised to become edges.
        rounds: How often labels spread.
    """

    memory: int = setting(500, at_least=1)
    near_texts: int = setting(3, at_least=1)
    near_images: int = setting(8, at_least=1)
    near_labelled: int = setting(8, at_least=1)
    power: float = setting(10.0, above=0)
    rounds: int = setting(3, at_least=1)


@dataclass(frozen=True)
class EcalpLabelSettings(Asking, EcalpSettings):
    """The same, and whom to ask about.

    Attributes:
        buffer: How many labelled images are in the graph, the last ones.
    """

    policy: str = "paced"
    buffer: int = setting(500, at_least=1)


@method("ecalp", EcalpSettings)
class Ecalp(FeatureMethod):
    """Labels spread over a graph of class texts and the last images."""

    settings: EcalpSettings

    def start(self) -> State:
        size, (classes, dim) = self.settings.memory, self.text.shape
        return {
            "features": self.text.new_zeros(size, dim),
            "alike": self.text.new_zeros(size, size),
            "begin": self.text.new_zeros(size, classes),  # what each image starts a round with
            "seen": self.text.new_zeros((), dtype=torch.int64),
        }

    def adapt(self, seen: Seen) -> Tensor:
        place = self.enter(seen.feature)
        count = min(int(self.state["seen"]), self.settings.memory)
        scores = self.spread(count)
        top = scores.max(dim=1)
        leading = F.one_hot(top.indices, scores.shape[1]).to(scores)
        self.state["begin"][:count] = KEPT * top.values[:, None] * leading
        told = scores[place]
        return torch.log(told / told.sum().clamp_min(TINY) + TINY * seen.probs)

    def enter(self, feature: Tensor) -> int:
        """Put an image into the graph, in the place of the oldest where it is full."""
        place = int(self.state["seen"]) % self.settings.memory
        self.state["seen"] += 1
        self.state["features"][place], self.state["begin"][place] = feature, 0
        features = self.state["features"]
        self.state["alike"][place] = features @ self.weighted(feature[None])[0]
        self.state["alike"][:, place] = self.weighted(features) @ feature
        return place

    def weighted(self, features: Tensor) -> Tensor:
        """Features whose directions count by how much the class texts differ in them."""
        return F.normalize(features * self.text.var(dim=0), dim=-1)

    def anchors(self) -> tuple[Tensor, Tensor]:
        """Features and labels [n, K] of images whose class is known."""
        return self.text[:0], self.text.new_zeros(0, len(self.text))

    def spread(self, count: int) -> Tensor:
        """Scores of the images in the graph [count, K]."""
        settings, features = self.settings, self.state["features"][:count]
        known, labels = self.anchors()
        edges = torch.cat(
            [
                nearest(features @ self.text.T, settings.near_texts, settings.power),
                nearest(self.weighted(features) @ known.T, settings.near_labelled, settings.power),
                nearest(self.state["alike"][:count, :count], settings.near_images, settings.power),
            ],
            dim=1,
        )
        fixed = torch.cat([torch.eye(len(self.text)).to(labels), labels])
        # Both ways: from a text or a labelled image, only those edges that an image has to it.
        to_fixed, among = edges[:, : len(fixed)], edges[:, len(fixed) :]
        among = among + among.T
        degrees = 1 / (torch.cat([to_fixed.sum(dim=0), to_fixed.sum(dim=1) + among.sum(dim=1)]).sqrt() + 1e-6)
        outer, inner = degrees[: len(fixed)], degrees[len(fixed) :, None]
        told = inner * (to_fixed @ (outer[:, None] * fixed))
        scores = self.state["begin"][:count]
        for _ in range(settings.rounds):
            scores = told + inner * (among @ (inner * scores))
        return scores


@method("ecalp_labels", EcalpLabelSettings)
class EcalpLabels(Ecalp):
    """ECALP, where images with an answer are part of the graph."""

    asks = True
    settings: EcalpLabelSettings

    def start(self) -> State:
        size, numbers = self.settings.buffer, torch.int64
        return super().start() | {
            "known": self.text.new_zeros(size, self.text.shape[1]),
            "labels": self.text.new_zeros(size, dtype=numbers),
            "ids": self.text.new_full((size,), -1, dtype=numbers),
            "answers": self.text.new_zeros((), dtype=numbers),
        }

    def anchors(self) -> tuple[Tensor, Tensor]:
        held = self.state["ids"] >= 0
        labels = F.one_hot(self.state["labels"][held], len(self.text)).to(self.text)
        return self.state["known"][held], labels

    def learn(self, id: int, label: int, item: ReplayItem) -> None:
        place = int(self.state["answers"]) % self.settings.buffer
        self.state["answers"] += 1
        self.state["known"][place], self.state["labels"][place] = item.feature, label
        self.state["ids"][place] = id

    def forget(self, id: int, label: int, item: ReplayItem) -> None:
        self.state["ids"][self.state["ids"] == id] = -1

    def remembers(self, id: int) -> bool:
        return bool((self.state["ids"] == id).any())


def nearest(cosines: Tensor, count: int, power: float) -> Tensor:
    """In each row the highest ones, raised to a power; 0 elsewhere. Negative ones are no edges."""
    count = min(count, cosines.shape[1])
    if not count:
        return cosines
    found = cosines.topk(count, dim=1)
    return torch.zeros_like(cosines).scatter(1, found.indices, found.values.clamp_min(0) ** power)
