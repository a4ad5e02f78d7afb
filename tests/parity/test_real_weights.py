"""With published weights at hand: features equal to those of transformers, or open_clip, on the same files.

`TAPS_WEIGHTS=DIR make parity` takes every directory in DIR: a Hugging Face one is compared with transformers,
an open_clip one with open_clip where that is installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from taps import load_clip
from taps.model.clip import Clip
from tests.parity.test_open_clip import open_clip, token_ids

__all__ = ["open_clip"]  # a fixture

ROOT = os.environ.get("TAPS_WEIGHTS", "")
FOLDERS = sorted(path for path in Path(ROOT).iterdir() if path.is_dir()) if ROOT else []
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not ROOT, reason="TAPS_WEIGHTS names no directory")]


def agree(ours: Tensor, theirs: Any) -> None:
    theirs = theirs if isinstance(theirs, Tensor) else theirs.pooler_output
    assert float((ours - theirs).norm() / theirs.norm()) < 1e-4


def pixels(clip: Clip) -> Tensor:
    size = clip.config.image_size
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
@torch.no_grad()
def test_hugging_face(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        pytest.skip("not laid out as Hugging Face's")
    transformers = pytest.importorskip("transformers")
    if json.loads((folder / "config.json").read_text())["model_type"] == "siglip2":
        pytest.skip("takes patches of any shape")
    ours, theirs = load_clip(folder, device="cpu"), transformers.AutoModel.from_pretrained(folder).eval()
    agree(ours.encode_image(pixels(ours)), theirs.get_image_features(pixel_values=pixels(ours)))
    ids = token_ids(ours)
    agree(ours.encode_text(["a photo of a cat", "two dogs on a fire truck"]), theirs.get_text_features(ids))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
@torch.no_grad()
def test_open_clip_directory(folder: Path, request: pytest.FixtureRequest) -> None:
    if not (folder / "open_clip_config.json").is_file():
        pytest.skip("not laid out as open_clip's")
    if importlib.util.find_spec("open_clip") is None:
        pytest.skip("open_clip is not installed")
    module = request.getfixturevalue("open_clip")
    ours = load_clip(folder, device="cpu")
    theirs = module.create_model(f"local-dir:{folder}").eval()
    agree(ours.encode_image(pixels(ours)), theirs.encode_image(pixels(ours)))
    agree(
        ours.encode_text(["a photo of a cat", "two dogs on a fire truck"]),
        theirs.encode_text(token_ids(ours)),
    )
