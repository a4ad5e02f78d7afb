"""The sizes of a CLIP, read from JSON or from weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from taps.errors import WeightsError

ACTIVATIONS = ("gelu", "quick_gelu")


@dataclass(frozen=True)
class ClipConfig:
    """Sizes of both towers and the pixel statistics the model was trained with."""

    name: str
    embed_dim: int
    image_size: int
    patch_size: int
    vision_width: int
    vision_layers: int
    vision_heads: int
    text_width: int
    text_layers: int
    text_heads: int
    context_length: int
    vocab_size: int
    activation: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise WeightsError(
                f"The activation of {self.name!r} is {self.activation!r}; only "
                f"{' and '.join(ACTIVATIONS)} are known."
            )
        if self.image_size % self.patch_size:
            raise WeightsError(
                f"The image size {self.image_size} of {self.name!r} is no multiple of "
                f"its patch size {self.patch_size}."
            )

    @property
    def patches(self) -> int:
        """Number of patches of one image."""
        return (self.image_size // self.patch_size) ** 2

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ClipConfig:
        known = {field.name for field in fields(cls)}
        missing, unknown = sorted(known - values.keys()), sorted(values.keys() - known)
        if missing or unknown:
            raise WeightsError(f"The model configuration lacks {missing} and has unknown keys {unknown}.")
        return cls(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})


def builtin_names() -> list[str]:
    """Architectures that come with the package.

    >>> "ViT-B-16" in builtin_names()
    True
    """
    folder = resources.files("taps.clip") / "configs"
    return sorted(
        entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")
    )


def builtin_config(name: str) -> ClipConfig:
    """The configuration of an architecture that comes with the package."""
    if name not in builtin_names():
        raise WeightsError(
            f"There is no model named {name!r}; use one of {', '.join(builtin_names())}, 'pocket', "
            "the path of a CLIP checkpoint, or a Hugging Face repository such as "
            "openai/clip-vit-base-patch16."
        )
    text = (resources.files("taps.clip") / "configs" / f"{name}.json").read_text()
    return ClipConfig.from_dict(json.loads(text))


def read_config(path: Path) -> ClipConfig:
    """A configuration in this package's own JSON form."""
    return ClipConfig.from_dict(json.loads(path.read_text()))
