"""Class names + prompts of any family → a classifier, and the text features of its classes."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from taps.clip import Clip
from taps.prompts.base import Parameters, Prompts, prompt_tokens
from taps.prompts.classifier import Classifier
from taps.prompts.encoded import encoded_texts
from taps.prompts.proda import members
from taps.prompts.texts import Template, Texts, class_texts, read_texts


def prompt_classifier(clip: Clip, classes: tuple[str, ...], prompts: Prompts) -> Classifier:
    """A classifier whose class texts follow a learned context.

    The synonyms of a class are averaged behind the text tower, in training and in use.
    """
    context = prompts.parameters["context"].shape[-2]
    texts = class_texts(classes, prompts.suffix)
    counts = tuple(map(len, texts))
    layout = clip.text_layout([each for own in texts for each in own], context=context)
    return Classifier(clip, layout, prompts.kind, None if max(counts) == 1 else counts)


def text_classifier(
    clip: Clip, classes: tuple[str, ...], template: Template = None, texts: Texts = None
) -> Classifier:
    """A classifier whose class texts are hand-written: templates, sentences of each class, or both.

    A class is the normalised mean of its texts' normalised features, as in open_clip's zero-shot classifier.
    """
    made = class_texts(classes, template, read_texts(texts, classes))
    classifier = Classifier(clip, None, kind=None)
    return replace(classifier, features=encoded_texts(classifier, made))


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
