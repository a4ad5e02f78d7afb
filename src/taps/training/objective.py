"""What training minimises: the loss of one batch, family by family."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.prompts import proda
from taps.prompts.base import Parameters
from taps.prompts.classifier import Classifier
from taps.prompts.classify import class_features

IMAGE_FREE = ("coop", "cocoop", "proda")
"""Families whose prompts do not enter the image tower: image features are constants."""


def batch_losses(
    classifier: Classifier, parameters: Parameters, images: Tensor, labels: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Parts of the mean loss of a batch, and their logits [n, K]; the parts are differentiated one by one.

    Args:
        classifier: The classes and the family.
        parameters: The learned tensors, leaves to differentiate with respect to.
        images: Image features [N, d] for a family of `IMAGE_FREE`, else preprocessed images [N, 3, S, S].
        labels: True classes [N].
    """
    if classifier.kind == "cocoop":
        # Every image has texts of its own. One at a time: memory holds one text graph, not a batch of them.
        for feature, label in zip(images, labels, strict=True):
            text, _ = class_features(classifier, parameters, feature)
            logits = classifier.logits(feature[None], text)
            yield F.cross_entropy(logits, label[None]) / len(labels), logits
    elif classifier.kind == "proda":
        texts = [classifier.text(member.text) for member in proda.members(parameters)]
        bank = torch.stack([classifier.logits(images, text) for text in texts])
        yield proda.loss(bank, labels), bank.mean(dim=0)
    else:
        text, vision = class_features(classifier, parameters)
        features = images if vision is None else classifier.image(images, vision)
        logits = classifier.logits(features, text)
        yield F.cross_entropy(logits, labels), logits
