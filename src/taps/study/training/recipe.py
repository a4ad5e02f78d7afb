"""Training recipes: the numbers of a family, with changes, and the learning rate of each epoch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from taps.errors import SettingsError
from taps.model.prompts.families import FAMILIES, Recipe


def recipe_for(kind: str, **changes: Any) -> Recipe:
    """The recipe of a family, with the changes that are not None.

    >>> recipe_for("coop", epochs=3, lr=None).epochs
    3
    """
    given = {name: value for name, value in changes.items() if value is not None}
    recipe = replace(FAMILIES[kind].recipe, **given)
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
