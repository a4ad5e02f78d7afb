"""ECALP (Li et al., ICLR 2025): label propagation over class texts, the last images and answered ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.asking.rules import RULES
from taps.methods import EncodedImage, FeatureMethod, Snapshot, State, TextSettings, method, setting
from taps.rivals.labelled import BufferSettings, LabelledImages

KEPT = 0.2  # share of an image's top score that it starts the next round with
TINY = 1e-9  # weight of zero-shot where nothing reached the image


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


class EcalpLabelSettings(BufferSettings, EcalpSettings):
    """ECALP's, with the last `buffer` labelled images in the graph."""

    buffer: int = setting(500, at_least=1)
    # A prediction puts an image into the graph, so that none can be made of a feature nearby.
    acquisition: str = setting(
        "entropy",
        rule=lambda name: name in RULES and "sensitivity" not in RULES[name].needs,
        words="an asking rule other than sensitivity",
    )


class Highest:
    """The `near` highest cosines of each image with others; device and precision are those of `like`."""

    def __init__(self, rows: int, near: int, like: Tensor) -> None:
        self.values = like.new_zeros(rows, near)
        self.indices = like.new_zeros(rows, near, dtype=torch.int64)

    def find(self, rows: slice | Tensor, cosines: Tensor) -> None:
        """Find those of some images among all their cosines [rows, others]."""
        near = min(self.values.shape[1], cosines.shape[1])
        found = cosines.topk(near, dim=1)
        self.values[rows, :near], self.indices[rows, :near] = found.values, found.indices

    def edges(self, rows: int, others: int, power: float) -> Tensor:
        """Edges of the first images [rows, others]: cosines to a power, 0 for the lower and the negative."""
        near = min(self.values.shape[1], others)
        values = self.values[:rows, :near].clamp_min(0) ** power
        return values.new_zeros(rows, others).scatter(1, self.indices[:rows, :near], values)


class Graph:
    """The nearest neighbours of the images in the graph, updated for each that comes."""

    def __init__(self, text: Tensor, settings: EcalpSettings) -> None:
        self.text, self.spread, size = text, text.var(dim=0), settings.memory
        # Features, each direction weighted by how much the class texts differ in it.
        self.weighted = text.new_zeros(size, text.shape[1])
        self.texts = Highest(size, settings.near_texts, text)  # cosines with texts
        self.images = Highest(size, settings.near_images, text)  # weighted cosines with each other
        self.known = 0  # images whose nearest are known

    def enter(self, feature: Tensor, place: int) -> None:
        self.weighted[place] = F.normalize(feature * self.spread, dim=-1)
        self.texts.find(slice(place, place + 1), feature[None] @ self.text.T)

    def find_nearest(self, alike: Tensor, place: int) -> None:
        """Find the nearest images again, where they may have changed since one came to `place`."""
        count, near = len(alike), self.images.values.shape[1]
        stale = torch.arange(count, device=alike.device) >= self.known
        if count > near:
            lowest, indices = self.images.values[:count, -1], self.images.indices[:count]
            stale |= (alike[:, place] >= lowest) | (indices == place).any(dim=1)
            stale[place] = True
            self.known = count
        rows = stale.nonzero()[:, 0]
        self.images.find(rows, alike[rows])


@method("ecalp", EcalpSettings)
class Ecalp(FeatureMethod):
    """ECALP (Li et al., ICLR 2025): label propagation over a graph of class texts and the last images."""

    settings: EcalpSettings
    graph: Graph | None = None  # follows from the state

    def start(self) -> State:
        size, (classes, dim) = self.settings.memory, self.text.shape
        return {
            "features": self.text.new_zeros(size, dim),
            "alike": self.text.new_zeros(size, size),
            "begin": self.text.new_zeros(size, classes),  # what each image starts a round with
            "seen": self.text.new_zeros((), dtype=torch.int64),
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        place = int(self.state["seen"]) % self.settings.memory
        self.state["seen"] += 1
        count = min(int(self.state["seen"]), self.settings.memory)
        graph = self.enter(seen.feature, place, count)
        scores = self.spread(graph, count)
        top = scores.max(dim=1)
        leading = F.one_hot(top.indices, scores.shape[1]).to(scores)
        self.state["begin"][:count] = KEPT * top.values[:, None] * leading
        own = scores[place]
        return torch.log(own / own.sum().clamp_min(TINY) + TINY * seen.probs)

    def enter(self, feature: Tensor, place: int, count: int) -> Graph:
        """Put an image into the graph, in the place of the oldest where it is full."""
        features, alike = self.state["features"], self.state["alike"]
        features[place], self.state["begin"][place] = feature, 0
        if self.graph is None:
            self.graph = Graph(self.text, self.settings)
            for before in range(count):
                self.graph.enter(features[before], before)
        else:
            self.graph.enter(feature, place)
        alike[place] = features @ self.graph.weighted[place]
        alike[:, place] = self.graph.weighted @ feature
        self.graph.find_nearest(alike[:count, :count], place)
        return self.graph

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        self.graph = None

    def anchors(self) -> tuple[Tensor, Tensor]:
        """Features and labels [n, K] of images whose class is known."""
        return self.text[:0], self.text.new_zeros(0, len(self.text))

    def spread(self, graph: Graph, count: int) -> Tensor:
        """Scores of the images in the graph [count, K]."""
        settings, (known, labels) = self.settings, self.anchors()
        to_known = Highest(count, settings.near_labelled, known)
        to_known.find(slice(count), graph.weighted[:count] @ known.T)
        to_fixed = torch.cat(
            [
                graph.texts.edges(count, len(self.text), settings.power),
                to_known.edges(count, len(known), settings.power),
            ],
            dim=1,
        )
        fixed = torch.cat([torch.eye(len(self.text)).to(labels), labels])
        # Both ways: from a text or a labelled image, only those edges that an image has to it.
        among = graph.images.edges(count, count, settings.power)
        among = among + among.T
        degrees = 1 / (torch.cat([to_fixed.sum(dim=0), to_fixed.sum(dim=1) + among.sum(dim=1)]).sqrt() + 1e-6)
        outer, inner = degrees[: len(fixed)], degrees[len(fixed) :, None]
        from_fixed = inner * (to_fixed @ (outer[:, None] * fixed))
        scores = self.state["begin"][:count]
        if not among.is_cuda:
            among = among.to_sparse()  # sixteen edges an image
        for _ in range(settings.rounds):
            scores = from_fixed + inner * (among @ (inner * scores))
        return scores


@method("ecalp_labels", EcalpLabelSettings)
class EcalpLabels(LabelledImages, Ecalp):
    """ECALP with answered images in the graph."""

    settings: EcalpLabelSettings
    pure = False

    def anchors(self) -> tuple[Tensor, Tensor]:
        known, labels = self.held()
        return known, F.one_hot(labels, len(self.text)).to(self.text)
