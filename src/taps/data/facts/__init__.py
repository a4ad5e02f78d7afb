"""Facts about the named sets, as JSON: counts, layouts, class names."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


def fact(name: str) -> Any:
    return json.loads(files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8"))


@cache
def imagenet_names() -> dict[str, str]:
    """CLIP's readable name of each ImageNet class by its WordNet id, in the order of the labels."""
    names: dict[str, str] = fact("imagenet")
    return names


@cache
def class_names() -> dict[str, list[str]]:
    """The class names of the ten fine-grained sets, in the order of the labels."""
    names: dict[str, list[str]] = fact("classnames")
    return names
