"""Features equal to open_clip's on the same random weights, for every kind of model it has and we load.

open_clip is no dependency: it asks for torchvision, of which its models need nothing. Where it is installed
(`pip install --no-deps open_clip_torch timm`) these run, with torchvision's place taken by an empty module.
"""

from __future__ import annotations

import copy
import importlib.machinery
import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from taps.model.clip import Clip
from taps.model.clip.config import builtin_config
from taps.model.clip.formats import open_clip_config
from taps.model.clip.keys import to_openai_keys
from taps.model.clip.load import random_words
from taps.model.clip.tokenizer import CLIP_TOKENIZER
from taps.model.clip.weights import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("open_clip") is None, reason="open_clip is not installed"),
]
MODULES = (
    "torchvision", "torchvision.transforms", "torchvision.transforms.functional", "torchvision.ops",
    "torchvision.ops.misc", "torchvision.models", "torchvision.models.feature_extraction",
    "torchvision.datasets", "torchvision.transforms.v2", "torchvision.io",
)  # fmt: skip
TEXTS = ["a photo of a cat", "two dogs on a fire truck"]


class InterpolationMode(Enum):
    NEAREST, BILINEAR, BICUBIC, LANCZOS, BOX, HAMMING = range(6)


class Empty(types.ModuleType):
    """A module in which any name is an empty class, or one of the other empty modules."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "InterpolationMode":
            return InterpolationMode
        return sys.modules.get(f"{self.__name__}.{name}") or type(name, (), {})


@pytest.fixture(scope="module")
def open_clip() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("torchvision") is None:
            for name in MODULES:
                module = Empty(name)
                module.__spec__, module.__path__ = importlib.machinery.ModuleSpec(name, None), []
                patch.setitem(sys.modules, name, module)
        import open_clip
        import open_clip.model

        yield open_clip


def described(open_clip: Any, name: str) -> dict[str, Any]:
    """open_clip's own configuration, with two blocks where the number can be chosen."""
    folder = Path(open_clip.__file__).parent / "model_configs"
    values: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    values["text_cfg"]["layers"] = 2
    values["text_cfg"]["vocab_size"] = min(49408, values["text_cfg"]["vocab_size"])
    if isinstance(values["vision_cfg"].get("layers"), int):
        values["vision_cfg"]["layers"] = 2
    return values


def their_model(open_clip: Any, values: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    values = copy.deepcopy(values)
    for key in ("hf_tokenizer_name", "tokenizer_kwargs"):
        values["text_cfg"].pop(key, None)
    kind = open_clip.model.CustomTextCLIP if values.pop("custom_text", False) else open_clip.model.CLIP
    made = kind(**values).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
            if parameter.ndim == 4:  # as they start, many convolutions in a row leave nothing of an image
                parameter.mul_(2.0)
        for name, buffer in made.named_buffers():  # means and variances of batch norms
            if name.endswith(("running_mean", "running_var")):
                buffer.add_(0.2 * torch.rand_like(buffer))
    return made


def use_tanh(model: nn.Module) -> None:
    """SigLIP was trained with the approximate GELU, which open_clip has in some of its towers only."""
    for part in model.modules():
        for name in ("act", "gelu"):
            if isinstance(getattr(part, name, None), nn.GELU):
                setattr(part, name, nn.GELU(approximate="tanh"))


def token_ids(clip: Clip) -> torch.Tensor:
    words = clip.tokenizer
    ids = torch.full((len(TEXTS), clip.config.context_length), words.pad)
    for row, text in zip(ids, TEXTS, strict=True):
        tokens = [*words.start, *words.encode(text), *words.end]
        row[: len(tokens)] = torch.tensor(tokens)
    return ids


@pytest.mark.parametrize(
    "name",
    [
        "ViT-B-32", "ViT-H-14", "ViT-H-14-quickgelu", "ViT-g-14", "ViT-bigG-14", "ViT-H-14-worldwide",
        "ViT-L-14-CLIPA", "ViT-B-16-SigLIP", "ViT-B-16-SigLIP2", "ViT-SO400M-14-SigLIP2", "PE-Core-B-16",
        "PE-Core-T-16-384", "EVA02-B-16", "EVA02-L-14-336", "MobileCLIP-S1", "MobileCLIP2-S0",
        "MobileCLIP2-S2", "MobileCLIP2-S3", "MobileCLIP2-S4", "MobileCLIP2-B", "MobileCLIP2-L-14",
        "convnext_base", "convnext_base_w_320", "convnext_large_d", "convnext_xxlarge", "RN50", "RN50x4",
        "ViT-SO400M-16-SigLIP-i18n-256",
    ],
)  # fmt: skip
@torch.no_grad()
def test_features(open_clip: Any, name: str) -> None:
    values = described(open_clip, name)
    theirs = their_model(open_clip, values)
    if "SigLIP" in name:
        use_tanh(theirs)
    config = open_clip_config({"model_cfg": values}, name=name)
    known = builtin_config(name.removesuffix("-quickgelu"))
    for field in (
        "vision_heads", "text_heads", "vision_mlp", "text_mlp", "rotary", "causal", "vision_pool",
        "vision_tower", "stages", "vision_projection_hidden", "text_projection",
    ):  # fmt: skip
        assert getattr(known, field) == getattr(config, field), field
    words = CLIP_TOKENIZER if config.tokenizer == "clip" else random_words(config)
    ours = build(config, to_openai_keys(theirs.state_dict()), source=name, tokenizer=words)
    images = torch.randn(2, 3, config.image_size, config.image_size)
    for mine, other in (
        (ours.encode_image(images), theirs.encode_image(images)),
        (ours.encode_text(TEXTS), theirs.encode_text(token_ids(ours))),
    ):
        assert mine.shape == other.shape
        assert float((mine - other).norm() / other.norm()) < 1e-5
        apart = other[1] - other[0]  # where features are nearly the same, what tells them apart must agree
        assert float((mine[1] - mine[0] - apart).norm() / apart.norm()) < 1e-3


@torch.no_grad()
def test_branches_that_were_summed_up(open_clip: Any) -> None:
    """A FastViT whose branches timm itself has made one convolution each is read as well."""
    from timm.utils.model import reparameterize_model

    values = described(open_clip, "MobileCLIP2-S0")
    theirs = their_model(open_clip, values)
    config = open_clip_config({"model_cfg": values}, name="S0")
    images = torch.randn(2, 3, config.image_size, config.image_size)
    expected = theirs.encode_image(images)
    theirs.visual.trunk = reparameterize_model(theirs.visual.trunk)
    state = theirs.state_dict()
    assert any("reparam_conv" in key for key in state)
    ours = build(config, to_openai_keys(state), source="S0").encode_image(images)
    assert float((ours - expected).norm() / expected.norm()) < 1e-5


@pytest.mark.parametrize(
    "text", ["A cook’s “hat”", "salt &amp;amp; pepper", "ﬁre TRUCK", "ｃａｔ", "ΟΔΟΣ 北京"]
)
def test_token_ids(open_clip: Any, text: str) -> None:
    theirs = open_clip.tokenizer.SimpleTokenizer()(text)[0].tolist()
    ours = [*CLIP_TOKENIZER.start, *CLIP_TOKENIZER.encode(text), *CLIP_TOKENIZER.end]
    assert theirs[: len(ours)] == ours
    assert not any(theirs[len(ours) :])
