"""Features of CLIP's relatives equal to those of transformers on the same random weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor

from taps import load_clip
from taps.errors import WeightsError
from taps.model.clip import Clip
from taps.model.clip.config import builtin_config
from taps.model.clip.keys import to_openai_keys
from taps.model.clip.model import initialise
from taps.model.clip.weights import build

transformers = pytest.importorskip("transformers")

WORDS = ["<s>", "<pad>", "</s>", "<unk>", "a", "photo", "of", "cat", "fire", "truck", "two", "dogs", "A"]
TEXTS = ["A photo of a cat!", "two dogs", "a fire_truck."]
LENGTH = 9
TEXT = {
    "hidden_size": 48,
    "intermediate_size": 100,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "vocab_size": 50,
    "max_position_embeddings": LENGTH,
}
VISION = {
    "hidden_size": 64,
    "intermediate_size": 130,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}


def write_tokenizer(folder: Path, *, start: bool) -> None:
    """Words by their place in the list, an end marker, and where it is wanted a start marker."""
    tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    template = "<s> $A </s>" if start else "$A </s>"
    markers = [("<s>", 0), ("</s>", 2)] if start else [("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=markers)
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>", length=LENGTH)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<pad>"}))


def saved(model: Any, folder: Path, *, start: bool) -> Any:
    """The model with no weight left at zero, written as its authors write it."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.eval().save_pretrained(folder)
    write_tokenizer(folder, start=start)
    return model


def agree(ours: Tensor, theirs: Any) -> None:
    theirs = theirs if isinstance(theirs, Tensor) else theirs.pooler_output
    assert ours.shape == theirs.shape
    assert theirs.std() > 1e-2  # features that are all alike would agree with anything
    assert float((ours - theirs).norm() / theirs.norm()) < 1e-5


def filled(rows: list[list[int]]) -> Tensor:
    return torch.tensor([[*row, *[1] * (LENGTH - len(row))] for row in rows])


# What the texts become: lower case, no punctuation, an end marker, padding.
CANONICAL = filled([[4, 5, 6, 4, 7, 2], [10, 11, 2], [4, 8, 9, 2]])


@pytest.mark.parametrize("size", [32, 37])
@torch.no_grad()
def test_siglip(size: int, tmp_path: Path) -> None:
    """Also where patches leave some pixels over, as those of 14 do of 384."""
    torch.manual_seed(0)
    config = transformers.SiglipConfig(
        text_config={**TEXT, "projection_size": 64}, vision_config={**VISION, "image_size": size}
    )
    theirs = saved(transformers.SiglipModel(config), tmp_path, start=False)
    ours = load_clip(tmp_path, device="cpu")
    images = torch.randn(2, 3, size, size)
    agree(ours.encode_image(images), theirs.get_image_features(pixel_values=images))
    agree(ours.encode_text(TEXTS), theirs.get_text_features(input_ids=CANONICAL))
    assert ours.logit_bias is not None
    assert torch.equal(ours.logit_bias, theirs.logit_bias[0])
    assert (ours.config.resize, ours.config.mean) == ("squash", (0.5, 0.5, 0.5))


@torch.no_grad()
def test_siglip2_of_a_square_grid(tmp_path: Path) -> None:
    """The variant of any shape, at the shape its positions were made for."""
    torch.manual_seed(1)
    vision = {key: value for key, value in VISION.items() if key != "image_size"} | {"num_patches": 16}
    config = transformers.Siglip2Config(text_config={**TEXT, "projection_size": 64}, vision_config=vision)
    theirs = saved(transformers.Siglip2Model(config), tmp_path, start=False)
    ours = load_clip(tmp_path, device="cpu")
    images = torch.randn(2, 3, 32, 32)
    patches = images.reshape(2, 3, 4, 8, 4, 8).permute(0, 2, 4, 3, 5, 1).reshape(2, 16, -1)
    answer = theirs.get_image_features(
        pixel_values=patches,
        pixel_attention_mask=torch.ones(2, 16, dtype=torch.long),
        spatial_shapes=torch.tensor([[4, 4], [4, 4]]),
    )
    agree(ours.encode_image(images), answer)
    agree(ours.encode_text(TEXTS), theirs.get_text_features(input_ids=CANONICAL))


@torch.no_grad()
def test_metaclip_2(tmp_path: Path) -> None:
    """CLIP's towers with a vocabulary of many languages; upper case and punctuation stay."""
    torch.manual_seed(2)
    config = transformers.MetaClip2Config(
        text_config={**TEXT, "eos_token_id": 2}, vision_config=VISION, projection_dim=24
    )
    theirs = saved(transformers.MetaClip2Model(config), tmp_path, start=True)
    ours = load_clip(tmp_path, device="cpu")
    images = torch.randn(2, 3, 32, 32)
    agree(ours.encode_image(images), theirs.get_image_features(pixel_values=images))
    rows = filled([[0, 12, 5, 6, 4, 7, 3, 2], [0, 10, 11, 2], [0, 4, 3, 3, 2]])
    agree(ours.encode_text(TEXTS), theirs.get_text_features(input_ids=rows))


def test_a_model_with_a_vocabulary_of_its_own_asks_for_it(tmp_path: Path) -> None:
    config = transformers.SiglipConfig(text_config={**TEXT, "projection_size": 64}, vision_config=VISION)
    saved(transformers.SiglipModel(config), tmp_path, start=False)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(WeightsError, match=r"which token fills a text up; .*tokenizer_config\.json"):
        load_clip(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(WeightsError, match=r"vocabulary of its own: put its tokenizer\.json"):
        load_clip(tmp_path)


@torch.no_grad()
def test_halves_keep_the_logit_bias_exact(tmp_path: Path) -> None:
    config = transformers.SiglipConfig(text_config={**TEXT, "projection_size": 64}, vision_config=VISION)
    saved(transformers.SiglipModel(config), tmp_path, start=False)
    whole, half = (load_clip(tmp_path, device="cpu", dtype=dtype) for dtype in (None, torch.bfloat16))
    assert isinstance(half, Clip)
    assert half.logit_bias is not None
    assert torch.equal(half.logit_bias, whole.logit_bias)
    images = torch.randn(2, 3, 32, 32)
    off = (half.encode_image(images).float() - whole.encode_image(images)).norm()
    assert off / whole.encode_image(images).norm() < 0.05


@pytest.mark.parametrize("hidden", [False, True])
@torch.no_grad()
def test_convnext(hidden: bool) -> None:
    """The image tower of LAION's ConvNeXt CLIPs, under the names open_clip's files have."""
    torch.manual_seed(3)
    sizes = {"hidden_sizes": [8, 16, 32], "depths": [2, 1, 2], "num_stages": 3, "layer_scale_init_value": 0.5}
    theirs = transformers.ConvNextModel(transformers.ConvNextConfig(**sizes)).eval()
    for parameter in theirs.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    config = replace(
        builtin_config("tiny"), image_size=64, patch_size=16, vision_tower="convnext", vision_layers=0,
        vision_width=8, vision_mlp=32, vision_heads=1, stages=(2, 1, 2), vision_projection_hidden=hidden,
        vision_eps=theirs.config.layer_norm_eps,
    )  # fmt: skip
    state = {f"visual.trunk.{_timm_name(name)}": value for name, value in theirs.state_dict().items()}
    wide, out = 32, config.embed_dim
    if hidden:
        state["visual.head.mlp.fc1.weight"] = torch.randn(2 * out, wide)
        state["visual.head.mlp.fc1.bias"] = torch.randn(2 * out)
        state["visual.head.mlp.fc2.weight"] = torch.randn(out, 2 * out)
    else:
        state["visual.head.proj.weight"] = torch.randn(out, wide)
    words = initialise(Clip(config), torch.Generator().manual_seed(0)).named_parameters()
    state |= {name: value for name, value in words if not name.startswith("visual.")}
    images = torch.randn(2, 3, 64, 64)
    expected = theirs(images).pooler_output
    if hidden:
        fc1 = torch.nn.functional.linear(
            expected, state["visual.head.mlp.fc1.weight"], state["visual.head.mlp.fc1.bias"]
        )
        expected = torch.nn.functional.gelu(fc1) @ state["visual.head.mlp.fc2.weight"].T
    else:
        expected = expected @ state["visual.head.proj.weight"].T
    agree(build(config, to_openai_keys(state), source="here").encode_image(images), expected)


def _timm_name(name: str) -> str:
    """transformers' names for ConvNeXt's weights → timm's, which open_clip's files have."""
    for old, new in (
        ("embeddings.patch_embeddings", "stem.0"), ("embeddings.layernorm", "stem.1"), ("encoder.", ""),
        ("downsampling_layer", "downsample"), (".layers.", ".blocks."), ("dwconv", "conv_dw"),
        ("layernorm", "norm"), ("pwconv1", "mlp.fc1"), ("pwconv2", "mlp.fc2"),
        ("layer_scale_parameter", "gamma"),
    ):  # fmt: skip
        name = name.replace(old, new)
    return f"head.{name}" if name.startswith("norm.") else name
