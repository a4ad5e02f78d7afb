"""Class names + prompts of any family → a classifier, and the text features of its classes."""

from __future__ import annotations

import torch
from torch import Tensor

from taps.clip import Clip
from taps.prompts.base import Parameters, Prompts, prompt_tokens
from taps.prompts.classes import class_texts
from taps.prompts.classifier import Classifier
from taps.prompts.proda import members


def prompt_classifier(clip: Clip, classes: tuple[str, ...], prompts: Prompts) -> Classifier:
    """A classifier whose class texts follow a learned context."""
    context = prompts.parameters["context"].shape[-2]
    layout = clip.text_layout(class_texts(classes, prompts.suffix), context=context)
    return Classifier(clip, layout, prompts.kind)


def text_classifier(clip: Clip, classes: tuple[str, ...], template: str) -> Classifier:
    """A classifier whose class texts are hand-written sentences."""
    return Classifier(clip, clip.text_layout(class_texts(classes, template)), kind=None)


def placed(prompts: Prompts, classifier: Classifier) -> Parameters:
    """The learned tensors where, and in the precision in which, the classifier computes."""
    device, dtype = classifier.clip.device, classifier.dtype
    return {name: value.to(device, dtype) for name, value in prompts.parameters.items()}


def class_features(
    classifier: Classifier, parameters: Parameters, feature: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Text features of the classes [K, d] and the vision tokens.

    ProDA's are the mean of its Gaussian: the average over the bank.

    Args:
        classifier: The classes.
        parameters: The learned tensors; none for hand-written texts.
        feature: The image's normalised feature, for prompts that depend on it (cocoop).
    """
    if classifier.kind is None:
        return classifier.text(None), None
    if classifier.kind == "proda":
        return torch.stack([classifier.text(member.text) for member in members(parameters)]).mean(dim=0), None
    tokens = prompt_tokens(classifier.kind, parameters, feature)
    return classifier.text(tokens.text), tokens.vision
