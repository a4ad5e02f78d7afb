"""Image towers of convolutions on a GPU say what they say on the CPU, captured or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from taps import Learner
from taps.learning.fast import features
from taps.model.clip import Clip, ClipConfig
from taps.model.clip.config import builtin_config
from taps.model.clip.model import initialise
from taps.model.prompts.classify import text_classifier
from taps.types import PixelArray

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
NAMES = ("cat", "dog", "fire truck")
SMALL = replace(builtin_config("tiny"), image_size=64, patch_size=32, vision_layers=0, vision_heads=1)
FASTVIT = replace(
    SMALL, name="fastvit", vision_tower="fastvit", vision_width=16, vision_mlp=48, stages=(2, 1, 1, 1)
)
TOWERS = (
    replace(SMALL, name="resnet", vision_tower="resnet", vision_width=8, vision_heads=4, stages=(2, 1, 1, 1)),
    replace(SMALL, name="convnext", vision_tower="convnext", vision_width=8, vision_mlp=24, stages=(1, 2, 1)),
    FASTVIT,
    replace(FASTVIT, name="large", patch_size=64, vision_width=8, stages=(1, 1, 1, 1, 1)),
    replace(builtin_config("tiny"), name="stem", patch_stem=True, patch_bias=True, ln_pre=False),
)
towers = pytest.mark.parametrize("config", TOWERS, ids=lambda each: each.name)


@pytest.fixture(autouse=True)
def whole_float32() -> Iterator[None]:
    """Convolutions of float32 round to 10 bits on a GPU unless that is turned off."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def make(config: ClipConfig) -> Clip:
    """Random weights, large enough that images stay apart; no bias is 0."""
    clip = initialise(Clip(config), torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    for value in clip.visual.parameters():
        if value.ndim == 4:
            value.data.normal_(std=1.3 / value[0].numel() ** 0.5, generator=generator)
        elif not value.any():
            value.data.normal_(std=0.1, generator=generator)
    return clip


def views(config: ClipConfig, count: int, seed: int = 0) -> Tensor:
    """Squares of one colour each."""
    generator, side = torch.Generator().manual_seed(seed), config.image_size // 4
    squares = torch.randint(0, 256, (count, 3, 4, 4), generator=generator, dtype=torch.uint8)
    return squares.repeat_interleave(side, dim=2).repeat_interleave(side, dim=3)


def far(ours: Tensor, exact: Tensor) -> float:
    """The largest difference, as a share of what sets two images apart."""
    return float((ours.double().cpu() - exact).norm(dim=1).max() / (exact[1:] - exact[0]).norm(dim=1).max())


@towers
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.1)])
@torch.no_grad()
def test_cuda_features_are_those_of_the_cpu(config: ClipConfig, dtype: torch.dtype, tolerance: float) -> None:
    """By themselves, and replayed from a graph, for two numbers of views; the CPU computes in float64."""
    exact, clip = make(config).double(), make(config).to(device="cuda", dtype=dtype)
    classifier = text_classifier(clip, NAMES, "a photo of a {}.")
    for seed, count in enumerate((4, 4, 2)):
        pixels = views(config, count, seed)
        expected = torch.nn.functional.normalize(exact.encode_image(exact.preprocess(pixels)), dim=-1)
        plain = classifier.image(clip.preprocess(pixels.cuda()), None)
        assert far(plain, expected) < tolerance
        assert far(features.frozen_features(classifier, pixels.cuda()), expected) < tolerance
    assert len(features._models[clip].captured) == 2  # both could be captured


@towers
@pytest.mark.parametrize("method", ["tpt", "taps", "taps+"])
def test_cuda_streams_are_those_of_the_cpu(
    config: ClipConfig, method: str, picture: Callable[[int], PixelArray]
) -> None:
    """Captured steps (`engine="graph"` fails where they cannot be) on text prompts, with answers."""
    given = {"views": 4, "fraction": 0.5, "view_backend": "pillow", "prompts": "hand"}
    if method != "tpt":
        given |= {"policy": "fixed", "tau0": -1.0}
    said = []
    for device, engine in (("cpu", "eager"), ("cuda", "graph")):
        learner = Learner(make(config).to(device), NAMES, method, engine=engine, **given)
        rows = []
        for number in range(20 if method == "taps+" else 6):
            prediction = learner.predict_one(picture(number))
            rows.append(prediction.probs)
            if prediction.ask:
                learner.learn_one(prediction.id, number % len(NAMES))
        said.append(np.stack(rows))
    # A first AdamW step is a sign step: rounding may flip the sign of a component that is nearly 0.
    np.testing.assert_allclose(said[0], said[1], atol=0.05)
