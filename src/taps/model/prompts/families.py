"""A prompt family: what is learned, what it is trained with, and how public checkpoints of it are read.

A family is one file, here or in a plugin, and enters itself: `@family("mine")` above a subclass of `Family`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.errors import PromptsError
from taps.model.clip import Clip, ClipConfig
from taps.registry import Registry

if TYPE_CHECKING:
    from taps.model.prompts.base import Prompts
    from taps.model.prompts.classifier import Classifier

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class PromptTokens:
    """Prompt tokens of each tower [depth, tokens, width]; None where it has none."""

    text: Tensor | None
    vision: Tensor | None


@dataclass(frozen=True)
class Recipe:
    """Stochastic gradient descent with momentum, a warm-up at a tiny rate, then a cosine.

    Attributes:
        epochs: Passes over the images.
        batch: Images a step.
        lr: Learning rate the cosine starts from.
        warmup: Epochs at `warmup_lr`; at most one less than `epochs`, so that something is learned.
        crops: Random crops of each image; an epoch takes one of them, in turn. 0 makes new ones each
            epoch. Prompts in the text tower alone leave image features as they are: a crop is encoded once.
    """

    epochs: int
    batch: int
    lr: float
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warmup: int = 1
    warmup_lr: float = 1e-5
    crops: int = 0


class Family:
    """What is known of a family; only `initial`, `tokens` and `shapes` have no default.

    One of its tensors is named "context" [..., tokens, width]: its tokens stand before a class name.

    Attributes:
        name: Given by `@family`.
        recipe: The numbers of its training.
        vision: Whether its tokens enter the image tower, too.
        by_image: Whether its tokens depend on the image.
        noise: Whether untrained prompts of it are noise to the model.
    """

    name: ClassVar[str]
    recipe: ClassVar[Recipe] = Recipe(epochs=10, batch=32, lr=2e-3, crops=5)
    vision: ClassVar[bool] = False
    by_image: ClassVar[bool] = False
    noise: ClassVar[bool] = False

    def initial(self, clip: Clip, generator: torch.Generator) -> Prompts:
        """The prompts that training starts from."""
        raise NotImplementedError

    def tokens(self, parameters: Parameters, feature: Tensor | None = None) -> PromptTokens:
        """The tokens of both towers, from the learned tensors; `feature` is the image's, where `by_image`."""
        raise NotImplementedError

    def shapes(self, config: ClipConfig, parameters: Parameters) -> dict[str, tuple[int, ...]]:
        """Shapes of this family's tensors in a model of these sizes."""
        raise NotImplementedError

    def check_model(self, clip: Clip) -> None:
        """Refuse a model that cannot have such prompts."""
        if self.vision and clip.config.stages:
            raise PromptsError(
                f"The family {self.name} puts prompts into a vision transformer; the image tower of "
                f"{clip.config.name} is made of convolutions: use coop."
            )

    def features(
        self, classifier: Classifier, parameters: Parameters, feature: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Text features of the classes [K, d] and the vision tokens."""
        tokens = self.tokens(parameters, feature)
        return classifier.text(tokens.text), tokens.vision

    def losses(
        self, classifier: Classifier, parameters: Parameters, images: Tensor, labels: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Parts of the mean loss of a batch, and their logits [n, K]; each part is differentiated alone.

        Args:
            classifier: The classes.
            parameters: The learned tensors, leaves to differentiate with respect to.
            images: Preprocessed images [N, 3, S, S] where `vision`, else image features [N, d].
            labels: True classes [N].
        """
        text, vision = self.features(classifier, parameters)
        features = classifier.image(images, vision) if self.vision else images
        logits = classifier.logits(features, text)
        yield F.cross_entropy(logits, labels), logits

    def read(self, state: dict[str, Tensor], position: str | None) -> Parameters:
        """Take the learned tensors out of a public checkpoint's; `position` is where the class name stood."""
        raise PromptsError(
            f"{self.name!r} prompts cannot be imported: no public checkpoints of it are known."
        )

    def suffix(self, parameters: Parameters, fixed: Tensor | None, clip: Clip) -> str:
        """The text behind the learned tokens of a public checkpoint, whose `fixed` vectors followed them."""
        return "{}."


FAMILIES: Registry[Family] = Registry("prompt family", "taps.model.prompts")
C = TypeVar("C", bound=type[Family])


def family(name: str) -> Callable[[C], C]:
    """Give a subclass of `Family` its name; training, methods and commands know it from then on."""

    def entered(kind: C) -> C:
        kind.name = name
        FAMILIES.enter(name, kind(), kind.__module__)
        return kind

    return entered


def take(state: dict[str, Tensor], name: str) -> Tensor:
    """Take a tensor out of a public checkpoint's."""
    if name not in state:
        raise PromptsError(f"The checkpoint has no {name}, only {', '.join(sorted(state)[:6]) or 'nothing'}.")
    return state.pop(name)
