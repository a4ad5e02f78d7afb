"""Features equal to those of transformers' CLIPModel on the same weights, images and texts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from taps import load_clip
from taps.model.clip import Clip
from taps.model.clip.tokenizer import EOT_ID, SOT_ID, encode

transformers = pytest.importorskip("transformers")

TEXTS = [
    "a photo of a cat.",
    "a photo of a three-toed sloth, a type of animal.",
    "",  # filled in below: as long as the context allows
    "Ångström & 北京",
    "x",
]
TEXTS[2] = " ".join(["dog"] * 75)
TOLERANCE = 1e-4

REDUCED = {
    "projection_dim": 24,
    "text_config": {
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
    },
    "vision_config": {
        "hidden_size": 96,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 3,
        "image_size": 48,
        "patch_size": 16,
    },
}


def their_model(config: dict[str, Any]) -> Any:
    """A CLIPModel of random weights, none of them zero: fresh biases are, and would hide their loss."""
    torch.manual_seed(0)
    model = transformers.CLIPModel(transformers.CLIPConfig(**config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def token_rows(texts: list[str]) -> Tensor:
    rows = [[SOT_ID, *encode(text), EOT_ID] for text in texts]
    return torch.tensor([row + [EOT_ID] * (77 - len(row)) for row in rows])


def features_of(answer: Any) -> Tensor:
    return answer if isinstance(answer, Tensor) else answer.pooler_output


def compare(theirs: Any, ours: Clip, images: Tensor, texts: list[str]) -> None:
    with torch.no_grad():
        expected_image = features_of(theirs.get_image_features(pixel_values=images))
        expected_text = features_of(theirs.get_text_features(input_ids=token_rows(texts)))
        image, text = ours.encode_image(images), ours.encode_text(texts)
    assert image.shape == expected_image.shape
    assert text.shape == expected_text.shape
    assert expected_image.std() > 1e-2  # features that are all alike would agree with anything
    assert expected_text.std() > 1e-2
    assert (image - expected_image).abs().max() < TOLERANCE
    assert (text - expected_text).abs().max() < TOLERANCE
    assert torch.allclose(ours.scale, theirs.logit_scale.exp())


def load_saved(theirs: Any, directory: Path) -> Clip:
    theirs.save_pretrained(directory)
    try:
        return load_clip(directory, device="cpu")
    finally:
        shutil.rmtree(directory)  # hundreds of megabytes


@pytest.mark.parametrize("activation", ["quick_gelu", "gelu"])
def test_reduced_model(tmp_path: Path, activation: str) -> None:
    config = {
        "projection_dim": REDUCED["projection_dim"],
        "text_config": {**REDUCED["text_config"], "hidden_act": activation},  # type: ignore[dict-item]
        "vision_config": {**REDUCED["vision_config"], "hidden_act": activation},  # type: ignore[dict-item]
    }
    theirs = their_model(config)
    ours = load_saved(theirs, tmp_path / "reduced")
    assert ours.config.activation == activation
    images = torch.randn(3, 3, 48, 48, generator=torch.Generator().manual_seed(1))
    compare(theirs, ours, images, TEXTS)


def test_whole_vit_b_32(tmp_path: Path) -> None:
    theirs = their_model({"vision_config": {"patch_size": 32}})
    ours = load_saved(theirs, tmp_path / "ViT-B-32")
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(2))
    compare(theirs, ours, images, TEXTS[:3])


@pytest.mark.slow
@pytest.mark.parametrize("patch", [16, 32])
def test_whole_models_on_more(tmp_path: Path, patch: int) -> None:
    theirs = their_model({"vision_config": {"patch_size": patch}})
    ours = load_saved(theirs, tmp_path / f"ViT-B-{patch}")
    images = torch.randn(8, 3, 224, 224, generator=torch.Generator().manual_seed(3))
    compare(theirs, ours, images, [*TEXTS, *[f"a photo of {number} cats" for number in range(20)]])
