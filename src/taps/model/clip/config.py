"""Configuration of a CLIP: sizes and parts of both towers, its pixels and its texts."""

from __future__ import annotations

import functools
import json
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from taps.errors import StateError, WeightsError
from taps.files import read_json
from taps.registry import nearest

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
class ClipConfig:
    """Both towers, and the pixels and texts the model was trained with. Defaults are OpenAI's."""

    name: str
    embed_dim: int  # length of a feature
    image_size: int  # side of the images, in pixels
    patch_size: int
    vision_width: int  # of convolutions: that of the first stage; it doubles from stage to stage
    vision_layers: int
    vision_heads: int
    text_width: int
    text_layers: int
    text_heads: int
    context_length: int = 77  # tokens of the longest text
    vocab_size: int = 49408
    activation: str = "gelu"
    mean: tuple[float, float, float] = CLIP_MEAN  # of the pixels of each channel, in 0..1
    std: tuple[float, float, float] = CLIP_STD
    vision_mlp: int = 0  # hidden width of the blocks; 0: four times the tower's width
    text_mlp: int = 0
    vision_eps: float = 1e-5  # of the layer norms
    text_eps: float = 1e-5
    patch_bias: bool = False
    class_token: bool = True
    ln_pre: bool = True  # a layer norm before the first block
    rotary: str = "none"  # rotary position embeddings, as EVA-02 or PE has them
    vision_tower: str = "transformer"  # towers of convolutions take no prompts
    stages: tuple[int, ...] = ()  # blocks of each stage of convolutions; a transformer has none
    patch_stem: bool = False  # two small convolutions before the one that embeds patches (MobileCLIP B)
    gated: bool = False  # EVA-02's blocks: SwiGLU, and layer norms inside attention and the hidden layer
    vision_pool: str = "class"  # class token, mean of the patches, or attention by a learned query (map)
    pool_heads: int = 0  # of "map"; 0: as many as a block's
    pool_mlp: int = 0  # hidden width of "map"; 0: a block's
    vision_projection: bool = True
    vision_projection_bias: bool = False
    vision_projection_hidden: bool = False  # a hidden layer of 2 · embed_dim before the projection
    text_projection: bool = True
    text_projection_bias: bool = False
    causal: bool = True  # whether a text token sees only those before it
    text_pool: str = "end"  # the end marker, or the last position
    logit_bias: bool = False  # softmax does not see it
    resize: str = "shortest"  # shortest side to image_size and centre crop, or squash to a square
    interpolation: str = "bicubic"
    tokenizer: str = "clip"  # CLIP's own, or the tokenizer.json beside the weights (file)
    clean: str = "lower"  # texts in lower case, without punctuation too (canonical), or only single spaces
    end_marker: bool = True  # whether texts end in the tokenizer's end marker

    def __post_init__(self) -> None:
        for tower in ("vision", "text"):
            width, heads = getattr(self, f"{tower}_width"), getattr(self, f"{tower}_heads")
            if not getattr(self, f"{tower}_mlp"):
                object.__setattr__(self, f"{tower}_mlp", 4 * width)
            if heads < 1 or width % heads:
                raise WeightsError(
                    f"{self.name!r} has a tower {width} wide with {heads} heads, which do not divide it."
                )
        for field, known in CHOICES.items():
            if getattr(self, field) not in known:
                raise WeightsError(
                    f"The {field} of {self.name!r} is {getattr(self, field)!r}; only {', '.join(known)} "
                    "are known."
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
        """Patches of one image; pixels left over on the right and below are not read."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def image_tokens(self) -> int:
        """Tokens of one image without prompts: the patches, and the class token if there is one."""
        return self.patches + self.class_token

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
    """Values from JSON, with tuples in place of lists."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def _facts(file: str) -> Any:
    return json.loads((resources.files("taps.model.clip") / "facts" / file).read_text())


@functools.cache
def architectures() -> dict[str, dict[str, Any]]:
    """Architecture → the fields that differ from the defaults.

    >>> architectures()["ViT-B-16"]["vision_width"]
    768
    """
    return _facts("architectures.json")  # type: ignore[no-any-return]


@functools.cache
def pretrained() -> dict[str, dict[str, dict[str, Any]]]:
    """Architecture → open_clip's name of weights → their repository, and fields that differ."""
    return _facts("pretrained.json")  # type: ignore[no-any-return]


def builtin_config(name: str) -> ClipConfig:
    """The configuration of an architecture that is known by name."""
    if name not in architectures():
        raise WeightsError(
            f"Unknown model {name!r}; use 'pocket', a name that `taps models` lists (such as "
            "ViT-B-16), the path of a CLIP checkpoint, or a Hugging Face repository such as "
            f"openai/clip-vit-base-patch16.{nearest(name, [*architectures(), 'pocket'])}"
        )
    return named_config(name, architectures()[name])


def named_config(name: str, values: dict[str, Any]) -> ClipConfig:
    """A configuration from the fields that differ from the defaults."""
    own = {key: value for key, value in values.items() if key not in ("timm", "words", "parameters")}
    return ClipConfig(name=name, **as_tuples(own))


def read_config(path: Path) -> ClipConfig:
    """A configuration that `taps models import` wrote; that of the embedded model has no format."""
    try:
        values = read_json(path) if "format" in (values := read_object(path)) else values
    except (OSError, StateError) as error:
        raise WeightsError(f"{error}; make it again with `taps models import`.") from error
    values.pop("format", None)
    return ClipConfig.from_dict(values)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object of another program."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read as JSON ({error}).") from error
    if not isinstance(values, dict):
        raise WeightsError(f"{path} does not hold a JSON object.")
    return values
