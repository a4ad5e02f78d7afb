"""Training recipes: the published numbers of each family, and the learning rate of each epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from taps.errors import SettingsError


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


# MaPLe and CoCoOp were published with batches of 4 and 1: the classes' texts are then encoded as often as the
# images. Larger batches reach the same accuracy in a fraction of the time.
RECIPES = {
    "coop": Recipe(epochs=50, batch=32, lr=2e-3, crops=5),
    "cocoop": Recipe(epochs=10, batch=8, lr=2e-3, crops=5),
    "proda": Recipe(epochs=10, batch=64, lr=2e-3, crops=5),
    "maple": Recipe(epochs=5, batch=16, lr=2.6e-3),
}


def recipe_for(kind: str, **changes: Any) -> Recipe:
    """The recipe of a family, with the changes that are not None.

    >>> recipe_for("coop", epochs=3, lr=None).epochs
    3
    """
    if kind not in RECIPES:
        raise SettingsError(f"Unknown prompt family {kind!r}; train one of {', '.join(RECIPES)}.")
    recipe = replace(RECIPES[kind], **{name: value for name, value in changes.items() if value is not None})
    for name, least in (("epochs", 1), ("batch", 1), ("warmup", 0), ("crops", 0)):
        if getattr(recipe, name) < least:
            raise SettingsError(f"{name} is {getattr(recipe, name)}; it must be at least {least}.")
    for name in ("lr", "warmup_lr", "weight_decay", "momentum"):
        if not 0 <= getattr(recipe, name) < math.inf:
            raise SettingsError(f"{name} is {getattr(recipe, name)}; it must be 0 or more.")
    return recipe


def learning_rate(recipe: Recipe, epoch: int) -> float:
    """Learning rate of an epoch, counted from 0.

    >>> [round(learning_rate(Recipe(epochs=4, batch=1, lr=1.0), epoch), 3) for epoch in range(4)]
    [0.0, 0.854, 0.5, 0.146]
    """
    if epoch < min(recipe.warmup, recipe.epochs - 1):
        return recipe.warmup_lr
    return recipe.lr * (1 + math.cos(math.pi * epoch / recipe.epochs)) / 2
