"""What methods in feature space share: features of views and class texts in, log-probabilities out, a state.

The model is run once on the views of an image; all the rest happens on its features. A state is a dict of
tensors, so that it is saved, restored and given room for added classes without a word from the method.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from taps.adapt.batch import batch_size
from taps.adapt.graphs.features import frozen_features
from taps.adapt.losses import mean_entropy, mean_log_probs, select_confident
from taps.adapt.memory import ReplayItem
from taps.clip import Clip
from taps.methods.base import BatchedMethod, HeadInputs, Method, MethodOutput, Snapshot
from taps.methods.settings import TextSettings, ViewSettings
from taps.prompts import Prompts
from taps.prompts.classifier import Classifier
from taps.prompts.classify import text_classifier

State = dict[str, Tensor]
EMPTY = 1e9  # entropy of a place in a memory that holds no image


@dataclass(frozen=True)
class EncodedImage:
    """One image as the frozen model sees it.

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
        """Of view 0 [d]."""
        return self.features[0]

    @property
    def probs(self) -> Tensor:
        """Zero-shot probabilities of view 0 [K]."""
        return torch.softmax(self.logits[0], dim=-1)


class EncodingMethod(BatchedMethod):
    """A method that is given the features of an image's views; those of many images are made at once.

    Attributes:
        classifier: The frozen model and the classes.
        prompts: Learned prompts, or None.
        vision: Their tokens in the vision tower, where they have some.
    """

    classifier: Classifier
    prompts: Prompts | None = None
    vision: Tensor | None = None

    def batch_key(self) -> Hashable:
        """Features depend on the model and the vision tokens alone, not on the classes."""
        prompts = None if self.vision is None or self.prompts is None else self.prompts.fingerprint
        return "features", id(self.classifier.clip), prompts

    @property
    def needs_features_only(self) -> bool:
        """One that encodes in its own way needs what that gives."""
        own = type(self)
        plain = own.encode is EncodingMethod.encode and own.encode_batch is EncodingMethod.encode_batch
        return plain and self.vision is None

    @torch.no_grad()
    def encode_batch(self, methods: Sequence[Method], views: Sequence[Tensor]) -> list[Tensor]:
        """Normalised features of the views of several images [n, d], each as if it were alone."""
        joined = torch.cat(list(views))
        if len(views) in (1, batch_size(len(views[0]), joined.device.type)):
            features = frozen_features(self.classifier, joined, self.vision)
        else:  # what is left over: captured work is of few shapes
            features = self.classifier.image(self.classifier.clip.preprocess(joined), self.vision)
        return list(torch.split(features, [len(each) for each in views]))

    def encode(self, views: Tensor, ahead: Tensor | None) -> Tensor:
        """Features of the views, which may have been made with those of others [n, d]."""
        return frozen_features(self.classifier, views, self.vision) if ahead is None else ahead


class FeatureMethod(EncodingMethod):
    """A subclass says how the state starts (`start`) and what one image does (`adapt`).

    Args:
        clip: The frozen model.
        classes: Class names.
        settings: With several views where they are `ViewSettings`.
        seed: For random choices.
    """

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
        """Take one image into the state, and predict it: log-probabilities, or logits [K]."""
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
        ensemble = mean_log_probs(seen.logits[seen.chosen])
        return MethodOutput(
            probs,
            seen.entropy,
            item,
            self.updated,
            feature=seen.feature,
            features=seen.features if len(seen.features) > 1 else None,
            ensemble=ensemble,
        )

    def see(self, features: Tensor) -> EncodedImage:
        """The image these are the features of."""
        logits, settings = self.logits(features), self.settings
        if isinstance(settings, ViewSettings):
            chosen = settings.confident(logits)
        else:
            chosen = select_confident(logits, 1.0)
        return EncodedImage(features, logits, chosen, float(mean_entropy(logits[chosen])))

    def logits(self, features: Tensor) -> Tensor:
        """Zero-shot logits [n, K]."""
        return self.classifier.logits(features, self.text)

    def head_inputs(self) -> HeadInputs:
        return HeadInputs(self.classifier, self.text, ("zero_shot", "own"), several=self.settings.views > 1)

    def grow(self, old: Self) -> None:
        """Rows of classes that were there are kept; those added are as at the start."""
        for name, before in old.state.items():
            self.state[name][tuple(slice(0, size) for size in before.shape)] = before

    def snapshot(self) -> Snapshot:
        return Snapshot(dict(self.state))

    def restore(self, snapshot: Snapshot) -> None:
        device = self.classifier.clip.device
        self.state = {name: snapshot.tensors[name].to(device, copy=True) for name in self.state}


def empty_memory(text: Tensor, shots: int, name: str = "memory", entropies: str = "entropies") -> State:
    """Room for so many images of each class: features [K, shots, d], entropies [K, shots]."""
    classes, dim = text.shape
    return {name: text.new_zeros(classes, shots, dim), entropies: text.new_full((classes, shots), EMPTY)}


def keep_surest(
    features: Tensor, entropies: Tensor, label: int, entropy: float, feature: Tensor
) -> int | None:
    """Put an image into a class's memory in the place of its least sure one, if it is surer.

    Args:
        features: Of the memory [K, shots, d]; written to.
        entropies: Theirs [K, shots], `EMPTY` where there is no image; written to.
        label: The class.
        entropy: Of the image.
        feature: Of the image [d].

    Returns:
        Its place, or None where it was not put in.
    """
    slot = int(entropies[label].argmax())
    if entropy >= float(entropies[label, slot]):
        return None
    features[label, slot], entropies[label, slot] = feature, entropy
    return slot


def closeness(keys: Tensor, feature: Tensor, sharpness: float) -> Tensor:
    """exp(−sharpness · (1 − cos)) of an image to each key [...]."""
    return torch.exp(sharpness * (keys @ feature - 1))


def class_means(state: State) -> tuple[Tensor, Tensor]:
    """The mean of the images in each class's memory [K, d], and how many there are [K]."""
    counts = (state["entropies"] < EMPTY).sum(dim=1)
    return state["memory"].sum(dim=1) / counts.clamp_min(1)[:, None], counts


def first_step(gradients: Sequence[Tensor], lr: float, eps: float = 1e-8) -> tuple[list[Tensor], bool]:
    """What AdamW takes off tensors that begin at zero: its corrected moments are the gradient and its square.

    Nothing where a gradient is not finite.

    Returns:
        One for each gradient, and whether there was a step.
    """
    taken = all(math.isfinite(float(gradient.sum())) for gradient in gradients)
    if not taken:
        return [torch.zeros_like(gradient) for gradient in gradients], False
    return [lr * gradient / (gradient.abs() + eps) for gradient in gradients], True


def entropy_gradient(logits: Tensor) -> Tensor:
    """Of the entropy of the rows' mean prediction, by their logits [n, K].

    Written out: with p̄ the mean of the rows' p_i, ∂H/∂z_ik = p_ik (a_k − Σ_j p_ij a_j) / n, where
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
