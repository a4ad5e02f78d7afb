"""The base of methods in feature space: features of views and class texts in, log-probabilities out.

The frozen model encodes the views of an image once; all the rest happens on their features. The state of a
method is a dict of tensors, which is saved, restored and widened for added classes here.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from taps.learning.fast import batch_size
from taps.learning.fast.features import frozen_features
from taps.learning.losses import mean_entropy, mean_log_probs
from taps.learning.memory import ReplayItem, check_item
from taps.methods.base import BatchedMethod, HeadInputs, Method, MethodOutput, Snapshot
from taps.methods.settings import TextSettings
from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.classifier import Classifier
from taps.model.prompts.classify import text_classifier
from taps.saved import check_like

State = dict[str, Tensor]
EMPTY = 1e9  # entropy of a place in a cache that holds no image
LEAST = 1e-4  # eigenvalue as a share of the largest, in a matrix that is made positive
ALIKE = 1e-9  # total variance below which images are copies of each other and say nothing of directions


@dataclass(frozen=True)
class EncodedImage:
    """One image as the frozen model encodes it.

    Attributes:
        features: Normalised features of the views [n, d], view 0 first.
        logits: Zero-shot logits of the views [n, K].
        chosen: Indices of the confident views, the surest first.
        entropy: H_t of these.
    """

    features: Tensor
    logits: Tensor
    chosen: Tensor
    entropy: float

    @property
    def feature(self) -> Tensor:
        """Feature of view 0 [d]."""
        return self.features[0]

    @property
    def probs(self) -> Tensor:
        """Zero-shot probabilities of view 0 [K]."""
        return torch.softmax(self.logits[0], dim=-1)


class EncodingMethod(BatchedMethod):
    """A method that works on the features of an image's views; those of many images are computed at once."""

    classifier: Classifier  # the frozen model and the classes
    prompts: Prompts | None = None
    vision: Tensor | None = None  # the prompts' tokens in the vision tower, where they have some

    def batch_key(self) -> Hashable:
        """Features depend on the model and the vision tokens alone, not on the classes."""
        prompts = None if self.vision is None or self.prompts is None else self.prompts.fingerprint
        return "features", id(self.classifier.clip), prompts

    @property
    def needs_features_only(self) -> bool:
        """Not where a subclass encodes in its own way."""
        own = type(self)
        plain = own.encode is EncodingMethod.encode and own.encode_batch is EncodingMethod.encode_batch
        return plain and self.vision is None

    @torch.no_grad()
    def encode_batch(self, methods: Sequence[Method], views: Sequence[Tensor]) -> list[Tensor]:
        """Normalised features of the views of several images [n, d], each as if it were alone."""
        joined = torch.cat(list(views))
        if len(views) in (1, batch_size(len(views[0]), joined.device.type)):
            features = frozen_features(self.classifier, joined, self.vision)
        else:  # graphs are captured for few shapes, not for what is left over
            features = self.classifier.image(self.classifier.clip.preprocess(joined), self.vision)
        return list(torch.split(features, [len(each) for each in views]))

    def encode(self, views: Tensor, ahead: Tensor | None) -> Tensor:
        """Features of the views [n, d]; `ahead` where `encode_batch` computed them."""
        return frozen_features(self.classifier, views, self.vision) if ahead is None else ahead


class FeatureMethod(EncodingMethod):
    """A subclass says how the state starts (`start`) and what one image does (`adapt`)."""

    settings: TextSettings
    updated = False  # whether a step was taken for the present image

    def __init__(self, clip: Clip, classes: tuple[str, ...], settings: TextSettings, seed: int) -> None:
        self.settings = settings
        self.classifier = text_classifier(clip, classes, settings.template, settings.texts)
        with torch.no_grad():
            self.text = self.classifier.text(None)
        self.state = self.start()

    def start(self) -> State:
        """The state before the first image; tensors that have a row for each class have it first."""
        return {}

    def adapt(self, seen: EncodedImage) -> Tensor:
        """Update the state with one image, and predict it: log-probabilities, or logits [K]."""
        raise NotImplementedError

    def item(self, seen: EncodedImage) -> ReplayItem | None:
        """What is kept of an image in case its label comes."""
        return ReplayItem(None, None, seen.feature.clone()) if self.asks else None

    @torch.no_grad()
    def predict(self, views: Tensor, ahead: Tensor | None = None) -> MethodOutput:
        seen = self.see(self.encode(views, ahead))
        if not bool(torch.isfinite(seen.logits).all()):  # nothing is learned from an image without numbers
            return MethodOutput(seen.probs, float("nan"))
        item = self.item(seen)
        probs = torch.softmax(self.adapt(seen), dim=-1)
        several = seen.features if len(seen.features) > 1 else None
        ensemble = mean_log_probs(seen.logits[seen.chosen])
        return MethodOutput(probs, seen.entropy, item, self.updated, None, seen.feature, several, ensemble)

    def see(self, features: Tensor) -> EncodedImage:
        """The image with these features of its views [n, d]."""
        logits = self.logits(features)
        chosen = self.settings.confident(logits)
        return EncodedImage(features, logits, chosen, float(mean_entropy(logits[chosen])))

    def logits(self, features: Tensor) -> Tensor:
        """Zero-shot logits [n, K]."""
        return self.classifier.logits(features, self.text)

    def cache(self, name: str = "memory") -> Cache:
        """A cache that is part of the state, as `empty_cache` made it."""
        return Cache(self.state[name], self.state[_entropies(name)])

    def head_inputs(self) -> HeadInputs:
        return HeadInputs(self.classifier, self.text, ("zero_shot", "own"), several=self.settings.views > 1)

    def grow(self, old: Self) -> None:
        """Rows of the former classes are kept; those added are as at the start."""
        for name, before in old.state.items():
            self.state[name][tuple(slice(0, size) for size in before.shape)] = before

    def check_item(self, item: ReplayItem) -> None:
        check_item(item, self.text.dtype, feature=self.text.shape[1:])

    def snapshot(self) -> Snapshot:
        return Snapshot(dict(self.state))

    def restore(self, snapshot: Snapshot) -> None:
        check_like(snapshot.tensors, self.state)
        device = self.classifier.clip.device
        self.state = {name: snapshot.tensors[name].to(device, copy=True) for name in self.state}


@dataclass(frozen=True)
class Cache:
    """The surest images of each predicted class; a part of a method's state, written to in place.

    Attributes:
        features: Of the images [K, shots, d], zeros in empty places.
        entropies: Of their predictions [K, shots], `EMPTY` in empty places.
    """

    features: Tensor
    entropies: Tensor

    @property
    def held(self) -> Tensor:
        """Which places hold an image [K, shots]."""
        return self.entropies < EMPTY

    def keep(self, label: int, entropy: float, feature: Tensor) -> int | None:
        """Put an image in the place of its class's least sure one, if it is surer; that place, or None."""
        slot = int(self.entropies[label].argmax())
        if entropy >= float(self.entropies[label, slot]):
            return None
        self.features[label, slot], self.entropies[label, slot] = feature, entropy
        return slot

    def means(self) -> Tensor:
        """The mean of each class's images [K, d], zeros where there are none."""
        return self.features.sum(dim=1) / self.held.sum(dim=1).clamp_min(1)[:, None]


def empty_cache(text: Tensor, shots: int, name: str = "memory") -> State:
    """A `Cache` of `shots` images a class, as a part of a state."""
    classes, dim = text.shape
    return {
        name: text.new_zeros(classes, shots, dim),
        _entropies(name): text.new_full((classes, shots), EMPTY),
    }


def _entropies(name: str) -> str:
    return "entropies" if name == "memory" else f"{name}_entropies"


def closeness(keys: Tensor, feature: Tensor, sharpness: float) -> Tensor:
    """exp(−sharpness · (1 − cos)) of an image to each key [...]."""
    return torch.exp(sharpness * (keys @ feature - 1))


def cholesky(matrix: Tensor) -> Tensor:
    """L of a symmetric matrix LLᵀ; of the nearest positive one where answers taken back left it none."""
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if not bool(failed):
        return factor
    if not bool(torch.isfinite(matrix).all()):
        return torch.full_like(matrix, math.nan)  # and so is the prediction: nobody is asked about it
    values, vectors = torch.linalg.eigh(matrix)
    least = float(values.abs().max()) * LEAST + torch.finfo(matrix.dtype).tiny ** 0.5
    factor = torch.linalg.cholesky((vectors * values.clamp_min(least)) @ vectors.T)
    return factor


def gaussian_scores(means: Tensor, covariance: Tensor, feature: Tensor) -> Tensor:
    """xᵀΛμ_k − ½ μ_kᵀΛμ_k of each class [K], with Λ the inverse of the covariance that they share."""
    # With Λ = (LLᵀ)⁻¹, one triangular solve gives all products: half the work of solving for Λμ.
    factor = cholesky(covariance)
    solved: Tensor = torch.linalg.solve_triangular(factor, torch.cat([means, feature[None]]).T, upper=False)
    return solved[:, -1] @ solved[:, :-1] - 0.5 * solved[:, :-1].square().sum(dim=0)


def ridge_precision(means: Tensor, scatter: Tensor, spread: float) -> Tensor:
    """Λμ_k [K, d] with Λ = d · (scatter + spread · I)⁻¹, or d · I where images are all alike."""
    dim = means.shape[1]
    if spread < ALIKE:
        return dim * means
    scatter.diagonal().add_(spread)
    return dim * torch.cholesky_solve(means.T, cholesky(scatter)).T


def first_step(gradients: Sequence[Tensor], lr: float, eps: float = 1e-8) -> tuple[list[Tensor], bool]:
    """AdamW's first step for tensors at zero, and whether it was taken: not where a gradient is not finite.

    The corrected first moments are the gradient and its square, and nothing decays.
    """
    taken = all(math.isfinite(float(gradient.sum())) for gradient in gradients)
    if not taken:
        return [torch.zeros_like(gradient) for gradient in gradients], False
    return [lr * gradient / (gradient.abs() + eps) for gradient in gradients], True


def entropy_gradient(logits: Tensor) -> Tensor:
    """Gradient of the entropy of the rows' mean prediction by their logits [n, K].

    With p̄ the mean of the rows' p_i, ∂H/∂z_ik = p_ik (a_k − Σ_j p_ij a_j) / n, where
    a_k = −ln p̄_k; the constant of −(1 + ln p̄_k) falls out.
    """
    probs = torch.softmax(logits, dim=-1)
    weights = -mean_log_probs(logits).clamp_min(torch.finfo(logits.dtype).min)
    return probs * (weights - (probs @ weights)[:, None]) / len(probs)


def through_unit(gradient: Tensor, unit: Tensor, rows: Tensor) -> Tensor:
    """A gradient by unit vectors as one by the rows they were made of; rows of zeros have none."""
    across = gradient - unit * (unit * gradient).sum(dim=-1, keepdim=True)
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return across / lengths.clamp_min(1e-12)
