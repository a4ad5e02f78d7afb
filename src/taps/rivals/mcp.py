"""MCP and MCP++ (Chen et al., ICCV 2025): prototypes of sure images and of images near their class.

The arithmetic is that of the authors' code. It adds up the mean prediction of confident views, the classes
read from the kept images by similarity (as DMN), and zero-shot corrected by prototypes and by unsure images
(as TDA).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.learning.losses import mean_entropy, mean_log_probs
from taps.methods import EncodedImage, State, ViewSettings, method, setting
from taps.methods.features import closeness, empty_cache, first_step
from taps.rivals.dmn import recalled
from taps.rivals.tda import Tda, TdaSettings

CENTRE = 0.8  # share of the prototype in a class's centre; the rest is its text
RECALL = 5.5  # how fast a kept image's part in its class fades with distance
ALIGN, APART, TEMPERATURE = 0.5, 0.2, 0.01  # weights of MCP++'s two contrasts; temperature of the first
EPS, TINY = 1e-3, 1e-7  # of AdamW; of a logarithm


class McpSettings(TdaSettings, ViewSettings):
    """MCP's values for DTD, here for all data sets.

    Attributes:
        positive_shots: Confident images kept of each predicted class.
        aligned_shots: Confident images kept of each class that are near its centre.
        recall_weight: Of the classes read from the kept images, beside the confident views.
        prototype_weight: Of zero-shot with the prototypes' votes, beside the confident views.
    """

    views: int = setting(32, at_least=1, at_most=10_000)
    positive_shots: int = setting(10, at_least=1)
    aligned_shots: int = setting(10, at_least=1)
    positive_weight: float = setting(5.0, at_least=0)
    positive_sharpness: float = setting(7.0, at_least=0)
    negative_shots: int = setting(3, at_least=1)
    recall_weight: float = setting(1.0, at_least=0)
    prototype_weight: float = setting(1.0, at_least=0)


class McpPlusSettings(McpSettings):
    """MCP's, and the learning rate of texts and prototypes for DTD."""

    lr: float = setting(6e-4, at_least=0)


@method("mcp", McpSettings)
class Mcp(Tda):
    """MCP (Chen et al., ICCV 2025): prototypes of sure images and of those near their class; no gradient."""

    settings: McpSettings

    def start(self) -> State:
        places = self.settings.aligned_shots + self.settings.positive_shots
        return {
            **super().start(),
            **empty_cache(self.text, self.settings.aligned_shots, "aligned"),
            # Both caches of a class as they were when one of them was last written for a prediction.
            "kept": self.text.new_zeros(len(self.text), places, self.text.shape[1]),
            "counts": self.text.new_zeros(len(self.text)),
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        self.keep(seen)
        views, corrected = self.compare(seen)
        read = recalled(self.state["kept"], self.text, seen.feature, RECALL)
        read = torch.softmax(self.scaled(seen.features[:1], read)[0], dim=-1)
        corrected = torch.softmax(corrected, dim=-1)
        settings = self.settings
        return torch.log(views + settings.recall_weight * read + settings.prototype_weight * corrected)

    def keep(self, seen: EncodedImage) -> None:
        """Put one image into the caches."""
        label, near = int(seen.logits[0].argmax()), int(mean_log_probs(seen.logits[seen.chosen]).argmax())
        entropy = self.entropy(seen.logits[0])
        self.cache("positive").keep(label, entropy, seen.feature)
        self.keep_aligned(near, seen.entropy, seen.feature)
        self.gather({label, near})
        if self.unsure(entropy):
            self.reflect(seen)

    def keep_aligned(self, label: int, entropy: float, feature: Tensor) -> None:
        """Where a class is full, an image must be surer than its least sure one and nearer to its centre."""
        cache = self.cache("aligned")
        worst = int(cache.entropies[label].argmax())
        if cache.held[label, worst]:
            centre = CENTRE * self.prototypes()[label] + (1 - CENTRE) * self.text[label]
            if torch.dist(feature, centre) >= torch.dist(cache.features[label, worst], centre):
                return
        cache.keep(label, entropy, feature)

    def gather(self, labels: Iterable[int]) -> None:
        """Bring the prototypes of some classes up to their caches."""
        both = [self.cache(name) for name in ("aligned", "positive")]
        for label in labels:
            self.state["kept"][label] = torch.cat([cache.features[label] for cache in both])
            self.state["counts"][label] = torch.cat([cache.held[label] for cache in both]).sum()

    def reflect(self, seen: EncodedImage) -> None:
        """Predict an unsure image again with the votes of sure ones, and keep it as unsure or as sure."""
        corrected = seen.logits[0] + self.votes_for(seen)
        entropy, label = self.entropy(corrected), int(corrected.argmax())
        if self.unsure(entropy):
            mask = (torch.softmax(corrected, dim=-1) > self.settings.mask_above).to(self.text)
            self.keep_unsure(label, entropy, seen.feature, mask)
        elif entropy <= self.settings.unsure_from * math.log2(len(self.text)):
            self.cache("positive").keep(label, entropy, seen.feature)

    def prototypes(self) -> Tensor:
        """The mean of each class's kept images [K, d]."""
        return self.state["kept"].sum(dim=1) / self.state["counts"].clamp_min(1)[:, None]

    def compare(self, seen: EncodedImage) -> tuple[Tensor, Tensor]:
        """The confident views' mean probability, and zero-shot logits with all votes [K]."""
        votes = self.prototype_votes(self.prototypes(), seen.feature)
        corrected = seen.logits[0] + votes - self.votes_against(seen.feature)
        return mean_log_probs(seen.logits[seen.chosen]).exp(), corrected

    def prototype_votes(self, prototypes: Tensor, feature: Tensor) -> Tensor:
        close = closeness(prototypes, feature, self.settings.positive_sharpness)
        return self.settings.positive_weight * close * (self.state["counts"] > 0)


@method("mcp_plus", McpPlusSettings)
class McpPlus(Mcp):
    """MCP++: class texts and MCP's prototypes take one step together for each image, and are reset."""

    settings: McpPlusSettings

    def compare(self, seen: EncodedImage) -> tuple[Tensor, Tensor]:
        """As in the authors' code, votes at the prototypes before the step and after it are both added."""
        prototypes, feature = self.prototypes(), seen.feature
        before = self.corrected(self.text, F.normalize(prototypes, dim=-1), feature)
        steps, self.updated = first_step(self.gradients(prototypes, feature), self.settings.lr, EPS)
        texts = F.normalize(self.text - steps[0], dim=-1)
        after = self.prototype_votes(F.normalize(prototypes - steps[1], dim=-1), feature)
        views = self.scaled(seen.features, texts)
        views = views[self.settings.confident(views)]
        return mean_log_probs(views).exp(), before + after - self.votes_against(feature)

    def corrected(self, texts: Tensor, prototypes: Tensor, feature: Tensor) -> Tensor:
        """Logits of a feature with all votes [K], from unit texts and prototypes."""
        votes = self.prototype_votes(prototypes, feature) - self.votes_against(feature)
        return self.scaled(feature[None], texts)[0] + votes

    @torch.enable_grad()
    def gradients(self, prototypes: Tensor, feature: Tensor) -> list[Tensor]:
        """Of entropy and contrasts by what is added to texts and to prototypes."""
        moved = [torch.zeros_like(each, requires_grad=True) for each in (self.text, prototypes)]
        texts, means = F.normalize(self.text + moved[0], dim=-1), F.normalize(prototypes + moved[1], dim=-1)
        entropy = mean_entropy(self.corrected(texts, means, feature)[None])
        held = self.state["counts"] > 0
        loss = entropy + ALIGN * contrast(means[held].T, texts[held].T)
        loss = loss + APART * apart(means[held], self.cache("negative").means()[held])
        return list(torch.autograd.grad(loss, moved))


def contrast(means: Tensor, texts: Tensor) -> Tensor:
    """InfoNCE between the rows of two matrices: the authors' rows are the dimensions, not the classes."""
    cosines = F.normalize(means, dim=-1) @ F.normalize(texts, dim=-1).T
    return F.cross_entropy(cosines / TEMPERATURE, torch.arange(len(cosines), device=cosines.device))


def apart(means: Tensor, unsure: Tensor) -> Tensor:
    """Grows as prototypes come near to the unsure images of their class."""
    return -torch.log(1 - F.cosine_similarity(means, unsure, dim=1) + TINY).mean()
