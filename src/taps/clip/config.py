"""The sizes of a CLIP, read from JSON or from weights."""

from __future__ import annotations

import functools
import json
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from taps.errors import StateError, WeightsError
from taps.files import read_json

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
CHOICES = {
    "vision_tower": ("transformer", "resnet", "convnext", "fastvit"),
    "activation": ("gelu", "gelu_tanh", "quick_gelu"),
    "vision_pool": ("class", "mean", "map"),
    "text_pool": ("end", "last"),
    "rotary": ("none", "eva", "pe"),
    "resize": ("shortest", "squash"),
    "interpolation": ("bicubic", "bilinear"),
    "tokenizer": ("clip", "file"),
    "clean": ("lower", "canonical", "whitespace"),
}


@dataclass(frozen=True)
class TowerConfig:
    """One transformer: sizes, and what its blocks are made of."""

    width: int
    layers: int
    heads: int
    mlp: int
    activation: str
    eps: float
    gated: bool


@dataclass(frozen=True)
class ClipConfig:
    """Both towers, and the pixels and texts the model was trained with. Defaults are OpenAI's.

    Attributes:
        name: Of the model.
        embed_dim: Length of a feature.
        image_size: Side of the images it takes, in pixels.
        patch_size: Side of a patch.
        vision_width: Width of the image tower; `vision_layers` blocks of `vision_heads` heads.
        text_width: Width of the text tower, likewise.
        context_length: Tokens a text may have.
        vocab_size: Tokens there are.
        activation: "gelu", "gelu_tanh" or "quick_gelu".
        mean: Of the pixels of each channel, in 0..1.
        std: Their standard deviation.
        vision_mlp: Hidden width of the image tower's blocks; 0 for four times the tower's.
        text_mlp: The same of the text tower.
        vision_eps: Added to the variance in layer norms of the image tower.
        text_eps: The same of the text tower.
        patch_bias: Whether patches are embedded with a bias.
        class_token: Whether a learned token stands before the patches.
        ln_pre: Whether tokens are normalised before the first block.
        rotary: Whether, and how, queries and keys are turned by their place: "none", "eva" or "pe".
        vision_tower: What the image tower is: "transformer", or convolutions, which take no prompts:
            "resnet", "convnext" or "fastvit". Their `vision_width` is that of the first stage; it doubles.
        stages: Blocks of each stage of convolutions; none for a transformer.
        patch_stem: Whether two small convolutions stand before the one that embeds patches (MobileCLIP B).
        gated: Whether blocks are EVA-02's: a gated hidden layer, and norms inside attention and that layer.
        vision_pool: What becomes the feature: "class" (the class token), "mean" (of the patches), or "map"
            (attention by a learned query, then a hidden layer).
        pool_heads: Heads of that attention; 0 for as many as a block's.
        pool_mlp: Its hidden width; 0 for as much as a block's.
        vision_projection: Whether the pooled token is projected to `embed_dim`.
        vision_projection_bias: Whether that projection has a bias.
        vision_projection_hidden: Whether a hidden layer of twice `embed_dim` stands before it.
        text_projection: Whether the text tower's pooled token is projected.
        text_projection_bias: Whether that projection has a bias.
        causal: Whether a text token sees only what stands before it.
        text_pool: What becomes a text's feature: "end" (its end marker) or "last" (the last position).
        logit_bias: Whether the model has a bias for its logits; softmax does not see it.
        resize: How an image becomes a square: "shortest" (side to size, centre crop) or "squash".
        interpolation: By which filter: "bicubic" or "bilinear".
        tokenizer: "clip" (comes with the package) or "file" (a tokenizer.json beside the weights).
        clean: How texts are cleaned: "lower", "canonical" (lower case without punctuation) or "whitespace".
        end_marker: Whether texts end in the tokenizer's end marker.
    """

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
    context_length: int = 77
    vocab_size: int = 49408
    activation: str = "gelu"
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD
    vision_mlp: int = 0
    text_mlp: int = 0
    vision_eps: float = 1e-5
    text_eps: float = 1e-5
    patch_bias: bool = False
    class_token: bool = True
    ln_pre: bool = True
    rotary: str = "none"
    vision_tower: str = "transformer"
    stages: tuple[int, ...] = ()
    patch_stem: bool = False
    gated: bool = False
    vision_pool: str = "class"
    pool_heads: int = 0
    pool_mlp: int = 0
    vision_projection: bool = True
    vision_projection_bias: bool = False
    vision_projection_hidden: bool = False
    text_projection: bool = True
    text_projection_bias: bool = False
    causal: bool = True
    text_pool: str = "end"
    logit_bias: bool = False
    resize: str = "shortest"
    interpolation: str = "bicubic"
    tokenizer: str = "clip"
    clean: str = "lower"
    end_marker: bool = True

    def __post_init__(self) -> None:
        for tower in ("vision", "text"):
            if not getattr(self, f"{tower}_mlp"):
                object.__setattr__(self, f"{tower}_mlp", 4 * getattr(self, f"{tower}_width"))
        for field, known in CHOICES.items():
            if getattr(self, field) not in known:
                raise WeightsError(
                    f"The {field} of {self.name!r} is {getattr(self, field)!r}; only {', '.join(known)} "
                    "are known."
                )
        for sizes in (self.vision, self.text):
            if sizes.heads < 1 or sizes.width % sizes.heads:
                raise WeightsError(
                    f"{self.name!r} has a tower {sizes.width} wide with {sizes.heads} heads, which do not "
                    "divide it."
                )
        if (self.vision_tower == "transformer") == bool(self.stages):
            raise WeightsError(
                f"The image tower of {self.name!r} is a {self.vision_tower} with the stages {self.stages}; "
                "a transformer has none, and convolutions have some."
            )
        if self.image_size < self.patch_size or (self.stages and self.image_size % self.patch_size):
            raise WeightsError(
                f"{self.name!r} takes patches of {self.patch_size} pixels, into which images of "
                f"{self.image_size} cannot be divided."
            )

    @property
    def patches(self) -> int:
        """Number of patches of one image; pixels that are left over on the right and below are not read."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def image_tokens(self) -> int:
        """Tokens of one image, prompts not counted: the patches, and the class token if there is one."""
        return self.patches + self.class_token

    @property
    def vision(self) -> TowerConfig:
        return TowerConfig(
            self.vision_width, self.vision_layers, self.vision_heads, self.vision_mlp, self.activation,
            self.vision_eps, self.gated,
        )  # fmt: skip

    @property
    def text(self) -> TowerConfig:
        return TowerConfig(
            self.text_width, self.text_layers, self.text_heads, self.text_mlp, self.activation,
            self.text_eps, gated=False,
        )  # fmt: skip

    @property
    def framing(self) -> dict[str, Any]:
        """How `make_views` makes an image a square for this model."""
        return {"size": self.image_size, "resize": self.resize, "interpolation": self.interpolation}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ClipConfig:
        known = {field.name for field in fields(cls)}
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        needed |= {"context_length", "vocab_size", "activation", "mean", "std"}
        missing, unknown = sorted(needed - values.keys()), sorted(values.keys() - known)
        if missing or unknown:
            raise WeightsError(f"The model configuration lacks {missing} and has unknown keys {unknown}.")
        return cls(**as_tuples(values))


def as_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Values from JSON, which has lists alone."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


@functools.cache
def architectures() -> dict[str, dict[str, Any]]:
    """What sets each architecture that is known by name apart from the defaults."""
    text = (resources.files("taps.clip") / "facts" / "architectures.json").read_text()
    return json.loads(text)  # type: ignore[no-any-return]


def builtin_names() -> list[str]:
    """Architectures that are known by name.

    >>> "ViT-B-16" in builtin_names()
    True
    """
    return list(architectures())


def builtin_config(name: str) -> ClipConfig:
    """The configuration of an architecture that is known by name."""
    if name not in architectures():
        raise no_model(name)
    return named_config(name, architectures()[name])


def no_model(name: str) -> WeightsError:
    return WeightsError(
        f"Unknown model {name!r}; use 'pocket', a name that `taps models` lists (such as "
        "ViT-B-16), the path of a CLIP checkpoint, or a Hugging Face repository such as "
        "openai/clip-vit-base-patch16."
    )


def named_config(name: str, values: dict[str, Any]) -> ClipConfig:
    """A configuration from what it does not have in common with the defaults."""
    own = {key: value for key, value in values.items() if key not in ("timm", "words", "parameters")}
    return ClipConfig(name=name, **as_tuples(own))


def read_config(path: Path) -> ClipConfig:
    """A configuration in this package's own JSON form."""
    try:
        values = read_json(path)
    except (OSError, StateError) as error:
        raise WeightsError(f"{error}; make it again with `taps models import`.") from error
    values.pop("format", None)
    return ClipConfig.from_dict(values)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object of somebody else's."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read as JSON ({error}).") from error
    if not isinstance(values, dict):
        raise WeightsError(f"{path} does not hold a JSON object.")
    return values
