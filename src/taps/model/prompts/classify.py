"""Class names + prompts of any family → a classifier, and the text features of its classes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.errors import TapsError
from taps.files import read_tensors, write_tensors
from taps.model.clip import Clip
from taps.model.prompts.base import Prompts
from taps.model.prompts.classifier import Classifier, class_means
from taps.model.prompts.families import FAMILIES, Parameters
from taps.model.prompts.texts import Template, Texts, class_texts, read_texts

CHUNK = 512  # texts encoded at once: thousands would need gigabytes


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
    return replace(classifier, features=_cached(classifier, made))


def _cached(classifier: Classifier, texts: Sequence[Sequence[str]]) -> Tensor:
    """Features of the classes [K, d]; kept on disk by content where a class has several texts.

    The folder is TAPS_CACHE, or ~/.cache/taps; it may be deleted at any time.
    """
    clip = classifier.clip
    # One text a class takes less than a second. Random weights have no name of their own.
    if max(map(len, texts)) == 1 or clip.fingerprint.startswith("random"):
        return _encode(classifier, texts)
    content = json.dumps([clip.fingerprint, str(clip.dtype), clip.device.type, texts])
    folder = Path(os.environ.get("TAPS_CACHE") or "~/.cache/taps").expanduser() / "texts"
    file = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.safetensors"
    with suppress(OSError, TapsError, KeyError):  # a file that is absent or damaged is made again
        return read_tensors(file)[0]["features"].to(clip.device)
    features = _encode(classifier, texts)
    with suppress(OSError, TapsError):  # a disk that is full or read-only costs time, and nothing else
        folder.mkdir(parents=True, exist_ok=True)
        write_tensors(file, {"features": features.cpu()})
    return features


@torch.no_grad()
def _encode(classifier: Classifier, texts: Sequence[Sequence[str]]) -> Tensor:
    counts, flat = [len(own) for own in texts], [each for own in texts for each in own]
    chunks = [flat[start : start + CHUNK] for start in range(0, len(flat), CHUNK)]
    encoded = [classifier.clip.encode_text(chunk).to(classifier.dtype) for chunk in chunks]
    features = F.normalize(torch.cat(encoded), dim=-1)
    return features if max(counts) == 1 else class_means(features, counts)


def placed(prompts: Prompts, classifier: Classifier) -> Parameters:
    """The learned tensors on the classifier's device and in its precision."""
    device, dtype = classifier.clip.device, classifier.dtype
    return {name: value.to(device, dtype) for name, value in prompts.parameters.items()}


def class_features(
    classifier: Classifier, parameters: Parameters, feature: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """Text features of the classes [K, d] and the vision tokens.

    Args:
        classifier: The classes.
        parameters: The learned tensors; none for hand-written texts.
        feature: The image's normalised feature, for prompts that depend on it.
    """
    if classifier.kind is None:
        return classifier.text(None), None
    return FAMILIES[classifier.kind].features(classifier, parameters, feature)
