"""CLIP's relatives: prompts where texts have no causal mask, where tokens turn, and where they are pooled."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from taps import Learner
from taps.clip import Clip, ClipConfig, TextLayout, WholeTexts
from taps.clip.config import builtin_config
from taps.clip.load import random_words
from taps.clip.model import initialise
from taps.prompts import maple
from taps.prompts.source import SourceStats

SMALL = replace(
    builtin_config("tiny"),
    vision_layers=3,
    text_layers=3,
    context_length=16,
    vision_mlp=100,
    mean=(0.5, 0.5, 0.5),
)
KINDS: dict[str, ClipConfig] = {
    "H": replace(SMALL, name="H", vision_width=80, text_width=64, text_heads=4),
    "SigLIP": replace(
        SMALL,
        name="SigLIP",
        embed_dim=64,
        activation="gelu_tanh",
        patch_bias=True,
        class_token=False,
        ln_pre=False,
        vision_pool="map",
        vision_projection=False,
        text_projection_bias=True,
        causal=False,
        text_pool="last",
        logit_bias=True,
        resize="squash",
        tokenizer="file",
        clean="canonical",
        vocab_size=500,
    ),
    "CLIPA": replace(
        SMALL,
        name="CLIPA",
        ln_pre=False,
        vision_pool="mean",
        causal=False,
        text_pool="last",
        tokenizer="file",
        end_marker=False,
        vocab_size=500,
    ),
    "PE": replace(
        SMALL, name="PE", rotary="pe", vision_pool="map", pool_heads=4, vision_projection_bias=True
    ),
    "EVA": replace(
        SMALL,
        name="EVA",
        rotary="eva",
        gated=True,
        ln_pre=False,
        patch_bias=True,
        vision_projection_bias=True,
    ),
    "MobileCLIP": replace(SMALL, name="MobileCLIP", causal=False),
}
NAMES = ("cat", "dog", "fire truck")


def made(kind: str) -> Clip:
    """Random, in double precision; no bias and no norm is left at its usual start."""
    config = KINDS[kind]
    clip = initialise(Clip(config, tokenizer=random_words(config)), torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(4)
    for parameter in clip.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return clip.double()


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_context_of_words_is_the_words(kind: str) -> None:
    """A learned context that starts as "a photo of a" gives exactly the features of the sentence."""
    clip = made(kind)
    layout = clip.text_layout([f"{name}." for name in NAMES], context=4)
    assert isinstance(layout, TextLayout if KINDS[kind].causal else WholeTexts)
    words = clip.token_embedding(torch.tensor(clip.tokenizer.encode("a photo of a")))
    learned = clip.encode_text(layout, words[None])
    written = clip.encode_text([f"a photo of a {name}." for name in NAMES])
    assert torch.allclose(learned, written, atol=1e-12)
    assert written.std() > 1e-3


@pytest.mark.parametrize("kind", ["SigLIP", "CLIPA", "MobileCLIP"])
def test_without_a_mask_every_token_is_seen(kind: str) -> None:
    """The context sees the class name behind it, and the padding counts."""
    clip = made(kind)
    layout = clip.text_layout(["cat", "dog"], context=2)
    assert isinstance(layout, WholeTexts)
    assert layout.ids.shape == (2, 16)
    context = torch.randn(2, 2, 48, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    shorter = replace(layout, ids=layout.ids.clone())
    shorter.ids[:, 12] = 7  # one token of the padding
    assert not torch.allclose(clip.encode_text(layout, context), clip.encode_text(shorter, context))


def attention(x: Tensor, weights: dict[str, Tensor], prefix: str, heads: int, queries: Tensor) -> Tensor:
    """Softmax attention written out, head by head."""
    width = x.shape[-1]
    w, b = weights[f"{prefix}.in_proj_weight"], weights[f"{prefix}.in_proj_bias"]
    q, k, v = (
        queries @ w[:width].T + b[:width],
        *(x @ w[i * width : (i + 1) * width].T + b[i * width : (i + 1) * width] for i in (1, 2)),
    )
    size, parts = width // heads, []
    for head in range(heads):
        s = slice(head * size, (head + 1) * size)
        parts.append(torch.softmax(q[:, s] @ k[:, s].T / math.sqrt(size), dim=1) @ v[:, s])
    return (
        torch.cat(parts, dim=1) @ weights[f"{prefix}.out_proj.weight"].T + weights[f"{prefix}.out_proj.bias"]
    )


def norm(x: Tensor, weights: dict[str, Tensor], name: str, eps: float) -> Tensor:
    spread = ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (spread + eps).sqrt() * weights[f"{name}.weight"] + weights[
        f"{name}.bias"
    ]


def hidden(x: Tensor, weights: dict[str, Tensor], prefix: str) -> Tensor:
    x = x @ weights[f"{prefix}.c_fc.weight"].T + weights[f"{prefix}.c_fc.bias"]
    x = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x @ weights[f"{prefix}.c_proj.weight"].T + weights[f"{prefix}.c_proj.bias"]


def test_prompts_of_a_map_head_are_seen_by_the_patches_and_not_pooled() -> None:
    """SigLIP's image tower written out, with prompts of depth 2 behind the patches."""
    clip = made("SigLIP")
    weights, eps = dict(clip.visual.named_parameters()), KINDS["SigLIP"].vision_eps
    generator = torch.Generator().manual_seed(5)
    image = torch.randn(3, 32, 32, dtype=torch.float64, generator=generator)
    prompts = torch.randn(2, 2, 64, dtype=torch.float64, generator=generator)
    x = F.conv2d(image[None], weights["conv1.weight"], weights["conv1.bias"], stride=8)[0].flatten(1).T
    x = torch.cat([x + weights["positional_embedding"], prompts[0]])
    for index in range(3):
        if index == 1:
            x = torch.cat([x[:16], prompts[1]])
        block = f"transformer.resblocks.{index}"
        normed = norm(x, weights, f"{block}.ln_1", eps)
        x = x + attention(normed, weights, f"{block}.attn", 2, normed)
        x = x + hidden(norm(x, weights, f"{block}.ln_2", eps), weights, f"{block}.mlp")
    x = norm(x, weights, "ln_post", eps)[:16]
    pooled = attention(x, weights, "pool.attn", 2, weights["pool.probe"][0])
    pooled = pooled + hidden(norm(pooled, weights, "pool.ln", eps), weights, "pool.mlp")
    got = clip.encode_image(image[None], prompts)
    assert torch.allclose(got, pooled, atol=1e-10)
    assert not torch.allclose(got, clip.encode_image(image[None]), atol=1e-3)


@pytest.mark.parametrize("kind", ["PE", "EVA"])
def test_prompts_do_not_turn(kind: str) -> None:
    """Two prompts that change places change nothing: they have no place."""
    clip = made(kind)
    generator = torch.Generator().manual_seed(5)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=generator)
    prompts = torch.randn(1, 2, 64, dtype=torch.float64, generator=generator)
    one, other = clip.encode_image(images, prompts), clip.encode_image(images, prompts.flip(1))
    assert torch.allclose(one, other, atol=1e-10)


def source_stats(clip: Clip, prompts: maple.Prompts) -> SourceStats:
    shape = (2, clip.config.image_tokens + 2, clip.config.vision_width)
    mean = torch.randn(shape, generator=torch.Generator().manual_seed(6))
    none = mean.new_zeros(0, *shape)
    return SourceStats(
        layers=(0, 1),
        count=9,
        mean=mean,
        variance=mean.abs(),
        classes=(),
        class_counts=torch.zeros(0),
        class_means=none,
        class_variances=none,
        model=clip.fingerprint,
        prompts=prompts.fingerprint,
    )


@pytest.mark.parametrize(
    "method", ["taps", "tpt", "maple", "maple+tpt", "promptalign", "taps+", "zero_shot+"]
)
@pytest.mark.parametrize("kind", ["H", "SigLIP"])
def test_methods_run_on_relatives(kind: str, method: str, picture) -> None:  # type: ignore[no-untyped-def]
    clip = made(kind).float()
    prompts = maple.initial(clip, torch.Generator().manual_seed(0), depth=2)
    settings: dict[str, object] = {}
    if method not in ("tpt", "zero_shot+"):
        settings["prompts"] = prompts
    if method == "promptalign":
        settings["source"] = source_stats(clip, prompts)
    if method not in ("zero_shot+", "maple"):
        settings |= {"views": 4, "fraction": 0.5}
    learner = Learner(clip, NAMES, method, **settings)
    for step in range(3):
        prediction = learner.predict_one(picture(step))
        assert np.isfinite(prediction.probs).all()
        assert math.isclose(float(prediction.probs.sum()), 1.0, abs_tol=1e-5)
        if prediction.ask:
            learner.learn_one(prediction.id, NAMES[step])
