"""DPE (Zhang et al., NeurIPS 2024): textual and visual prototypes take one step together for each image."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.learning.losses import mean_entropy
from taps.methods import EncodedImage, FeatureMethod, State, ViewSettings, method, setting
from taps.methods.features import closeness, empty_cache, first_step, through_unit

TEMPERATURE = 0.01  # of the contrast between texts and means
EPS = 1e-3  # of AdamW


class DpeSettings(ViewSettings):
    """DPE's published values for DTD, here for all data sets.

    Attributes:
        shots: Surest images kept of each predicted class.
        weight: α, of the cached means.
        sharpness: β, how fast a mean's vote fades with distance.
        lr: Learning rate of texts and means.
        align: Weight of the contrast between texts and means in the loss.
        sure_below: Entropy, in nats over log2 K, below which the moved texts are remembered.
    """

    shots: int = setting(3, at_least=1)
    weight: float = setting(6.0, at_least=0)
    sharpness: float = setting(3.0, at_least=0)
    lr: float = setting(6e-4, at_least=0)
    align: float = setting(0.2, at_least=0)
    sure_below: float = setting(0.1, at_least=0)


@method("dpe", DpeSettings)
class Dpe(FeatureMethod):
    settings: DpeSettings

    def start(self) -> State:
        return {
            "texts": self.text.clone(),  # the running mean of moved texts
            "moved": self.text.new_zeros(()),  # how many
            **empty_cache(self.text, self.settings.shots),
        }

    def adapt(self, seen: EncodedImage) -> Tensor:
        texts = F.normalize(self.state["texts"], dim=-1)
        logits = self.classifier.logits(seen.features, texts)
        chosen = self.settings.confident(logits)  # by the texts as they have moved
        logits, mean = logits[chosen], seen.features[chosen].mean(dim=0)
        entropy = float(mean_entropy(logits))
        cache = self.cache()
        cache.keep(int(logits.mean(dim=0).argmax()), entropy, mean)
        means, held = cache.means(), cache.held.any(dim=1)
        gradients = self.gradients(texts, means, held, mean)
        steps, self.updated = first_step(gradients, self.settings.lr, EPS)
        moved = F.normalize(self.state["texts"] - steps[0], dim=-1)
        predicted = self.score(moved, F.normalize(means - steps[1], dim=-1), held, seen.feature)
        if float(mean_entropy(predicted[None])) / math.log2(len(predicted)) < self.settings.sure_below:
            self.state["moved"] += 1
            self.state["texts"] += (moved - self.state["texts"]) / (self.state["moved"] + 1)
        return predicted

    def gradients(self, texts: Tensor, means: Tensor, held: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        """Of the prediction's entropy and of InfoNCE between each class's text and mean, by their residuals.

        With z the logits, ∂H/∂z_k = −p_k (ln p_k + H), and with S the cosines of held means and texts over
        the temperature, ∂InfoNCE/∂S = (softmax of each row − 1 on the diagonal) / rows. Texts are unit
        vectors, means of cached images are not; the residuals are added before both are normalised.
        """
        unit = F.normalize(means, dim=-1)
        logs = torch.log_softmax(self.score(texts, unit, held, feature), dim=-1)
        probs = logs.exp()
        by_logit = -probs * (logs - (probs * logs).sum())
        votes = self.votes(unit, held, feature)
        by_text = torch.outer(float(self.classifier.clip.scale) * by_logit, feature)
        by_mean = torch.outer(self.settings.weight * self.settings.sharpness * votes * by_logit, feature)
        rows = held.nonzero()[:, 0]
        contrast = torch.softmax(unit[rows] @ texts[rows].T / TEMPERATURE, dim=-1)
        contrast.diagonal().sub_(1)
        contrast *= self.settings.align / (TEMPERATURE * len(rows))
        by_text.index_add_(0, rows, contrast.T @ unit[rows])
        by_mean.index_add_(0, rows, contrast @ texts[rows])
        return through_unit(by_text, texts, self.state["texts"]), through_unit(by_mean, unit, means)

    def score(self, texts: Tensor, means: Tensor, held: Tensor, feature: Tensor) -> Tensor:
        """The logits of a feature [K], from unit texts and means."""
        logits = self.classifier.logits(feature[None], texts)[0]
        return logits + self.settings.weight * self.votes(means, held, feature)

    def votes(self, means: Tensor, held: Tensor, feature: Tensor) -> Tensor:
        return closeness(means, feature, self.settings.sharpness) * held
