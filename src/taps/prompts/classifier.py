"""Class names + frozen CLIP + a family of prompts = a classifier. Tokens in, normalised features out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.clip import Clip, TextLayout, WholeTexts
from taps.clip.tokenizer import encode
from taps.errors import ClassNameError
from taps.prompts.base import Parameters, PromptTokens, prompt_tokens


def check_classes(
    classes: Sequence[str] | Mapping[int, str], *, allow_duplicates: bool = False
) -> tuple[str, ...]:
    """Class names that can be classified into, or a sentence that says why not.

    Args:
        classes: The names; or names by index, as an `id2label` of transformers has them.
        allow_duplicates: As ImageNet needs it: two of its classes are named "missile", two "sunglasses".
    """
    if isinstance(classes, str):  # it would be taken for a list of letters
        raise ClassNameError(f"The classes are one text, {classes!r}; give a list of names.")
    if isinstance(classes, Mapping):
        classes = _by_index(classes)
    for place, name in enumerate(classes):
        if not isinstance(name, str):
            raise ClassNameError(f"Class {place} is {name!r}; class names are texts, such as 'cat'.")
    names = tuple(name.strip() for name in classes)
    if len(names) < 2:
        raise ClassNameError(
            f"A classifier needs at least two classes, but {len(names)} was given: {list(names)}."
        )
    if any(not name for name in names):
        raise ClassNameError("A class name is empty; give every class a name.")
    seen: dict[str, str] = {}
    for name in names:
        key = readable(name).casefold()
        if key in seen and not allow_duplicates:
            raise ClassNameError(f"The class names {seen[key]!r} and {name!r} are the same; keep one.")
        seen[key] = name
    return names


def _by_index(names: Mapping[int, str]) -> list[str]:
    """The names of an id2label mapping, in the order of their indices."""
    by_index = {int(key): name for key, name in names.items() if str(key).isdecimal()}
    if sorted(by_index) != list(range(len(names))):
        raise ClassNameError(
            f"The classes are a mapping whose keys are not 0 to {len(names) - 1}; give a list of names."
        )
    return [by_index[index] for index in range(len(names))]


def readable(name: str) -> str:
    """A class name as it is put into a sentence.

    >>> readable("fire_truck")
    'fire truck'
    """
    return name.replace("_", " ")


def class_texts(classes: Sequence[str], template: str) -> list[str]:
    """The texts that stand for the classes."""
    if template.count("{}") != 1:
        places = template.count("{}") or "no"
        raise ClassNameError(f"The template {template!r} has {places} {{}}; one says where the name goes.")
    nameless = [name for name in classes if not encode(readable(name))]
    if nameless:
        raise ClassNameError(
            f"The class name {nameless[0]!r} has no tokens; give it at least one letter or digit."
        )
    return [template.replace("{}", readable(name)) for name in classes]


@dataclass(frozen=True)
class Classifier:
    """What stays the same for a whole stream.

    Attributes:
        clip: The frozen model.
        layout: Where the tokens of the class texts go.
        kind: Family of the prompts, or None for hand-written text alone.
    """

    clip: Clip
    layout: TextLayout | WholeTexts
    kind: str | None

    @property
    def dtype(self) -> torch.dtype:
        """Features are normalised and compared in float32, whatever the precision of the frozen weights."""
        return torch.float64 if self.clip.dtype == torch.float64 else torch.float32

    def tokens(self, parameters: Parameters) -> PromptTokens:
        return PromptTokens(None, None) if self.kind is None else prompt_tokens(self.kind, parameters)

    def text(self, context: Tensor | None) -> Tensor:
        """Normalised features of the class texts [K, d]; [B, K, d] of contexts [depth, B, tokens, width]."""
        return F.normalize(self.clip.encode_text(self.layout, context).to(self.dtype), dim=-1)

    def image(self, images: Tensor, vision: Tensor | None) -> Tensor:
        """Normalised features of preprocessed images [N, d]; `vision` may differ from image to image."""
        return self.image_and_layers(images, vision)[0]

    def image_and_layers(
        self, images: Tensor, vision: Tensor | None, layers: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        features, kept = self.clip.encode_image_and_layers(images, vision, layers)
        return F.normalize(features.to(self.dtype), dim=-1), [layer.to(self.dtype) for layer in kept]

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scaled cosine similarities [..., N, K]."""
        return self.clip.scale.to(self.dtype) * images @ texts.mT
