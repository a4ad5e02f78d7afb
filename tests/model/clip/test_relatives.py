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
from taps.errors import PromptsError
from taps.model.clip import Clip, ClipConfig, TextLayout, WholeTexts
from taps.model.clip.config import builtin_config
from taps.model.clip.keys import to_openai_keys
from taps.model.clip.load import random_words
from taps.model.clip.model import initialise
from taps.model.clip.weights import build
from taps.model.prompts.maple import Maple
from tests.statistics import made_up_stats

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


RESNET = replace(
    SMALL,
    name="RN",
    image_size=64,
    patch_size=32,
    vision_width=8,
    vision_layers=0,
    vision_heads=4,
    vision_tower="resnet",
    stages=(2, 1, 1, 1),
)


def resnet_state(generator: torch.Generator) -> dict[str, Tensor]:
    """Random weights of a small ResNet under OpenAI's names, batch norms and all."""
    state: dict[str, Tensor] = {}

    def conv(name: str, norm: str, outputs: int, inputs: int, size: int) -> None:
        state[f"{name}.weight"] = torch.randn(outputs, inputs, size, size, generator=generator) / inputs**0.5
        for part in ("weight", "running_var"):
            state[f"{norm}.{part}"] = 0.5 + torch.rand(outputs, generator=generator)
        for part in ("bias", "running_mean"):
            state[f"{norm}.{part}"] = 0.3 * torch.randn(outputs, generator=generator)
        state[f"{norm}.num_batches_tracked"] = torch.tensor(7)

    for place, (outputs, inputs) in enumerate(((4, 3), (4, 4), (8, 4)), start=1):
        conv(f"visual.conv{place}", f"visual.bn{place}", outputs, inputs, 3)
    inputs = 8
    for stage, blocks in enumerate(RESNET.stages):
        middle = 8 * 2**stage
        for block in range(blocks):
            prefix = f"visual.layer{stage + 1}.{block}."
            conv(f"{prefix}conv1", f"{prefix}bn1", middle, inputs, 1)
            conv(f"{prefix}conv2", f"{prefix}bn2", middle, middle, 3)
            conv(f"{prefix}conv3", f"{prefix}bn3", 4 * middle, middle, 1)
            if not block:
                conv(f"{prefix}downsample.0", f"{prefix}downsample.1", 4 * middle, inputs, 1)
            inputs = 4 * middle
    state["visual.attnpool.positional_embedding"] = torch.randn(5, 256, generator=generator)
    for name, outputs in (("q", 256), ("k", 256), ("v", 256), ("c", 32)):
        state[f"visual.attnpool.{name}_proj.weight"] = torch.randn(outputs, 256, generator=generator) / 16
        state[f"visual.attnpool.{name}_proj.bias"] = torch.randn(outputs, generator=generator)
    return state


def literal_resnet(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """OpenAI's ResNet, convolution after norm after convolution, and torch's own attention at the end."""

    def step(x: Tensor, conv: str, norm: str, **sizes: int) -> Tensor:
        x = F.conv2d(x, state[f"visual.{conv}.weight"], **sizes)
        parts = (state[f"visual.{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *parts)

    x = F.relu(step(x, "conv1", "bn1", stride=2, padding=1))
    x = F.relu(step(x, "conv2", "bn2", padding=1))
    x = F.avg_pool2d(F.relu(step(x, "conv3", "bn3", padding=1)), 2)
    for stage, blocks in enumerate(RESNET.stages):
        for block in range(blocks):
            p, stride = f"layer{stage + 1}.{block}.", 2 if stage and not block else 1
            inner = F.relu(step(x, f"{p}conv1", f"{p}bn1"))
            inner = F.relu(step(inner, f"{p}conv2", f"{p}bn2", padding=1))
            inner = step(F.avg_pool2d(inner, stride), f"{p}conv3", f"{p}bn3")
            if not block:
                x = step(F.avg_pool2d(x, stride), f"{p}downsample.0", f"{p}downsample.1")
            x = F.relu(x + inner)
    x = x.flatten(2).permute(2, 0, 1)
    x = torch.cat([x.mean(0, keepdim=True), x]) + state["visual.attnpool.positional_embedding"][:, None]
    named = {f"{name}_proj": f"visual.attnpool.{name}_proj" for name in "qkvc"}
    out, _ = F.multi_head_attention_forward(
        x[:1], x, x, 256, 4, None,
        torch.cat([state[f"{named[f'{name}_proj']}.bias"] for name in "qkv"]), None, None, False, 0.0,
        state["visual.attnpool.c_proj.weight"], state["visual.attnpool.c_proj.bias"],
        training=False, need_weights=False, use_separate_proj_weight=True,
        q_proj_weight=state["visual.attnpool.q_proj.weight"],
        k_proj_weight=state["visual.attnpool.k_proj.weight"],
        v_proj_weight=state["visual.attnpool.v_proj.weight"],
    )  # fmt: skip
    return out[0]


def resnet() -> tuple[Clip, dict[str, Tensor]]:
    state = resnet_state(torch.Generator().manual_seed(8))
    whole = dict(initialise(Clip(RESNET), torch.Generator().manual_seed(3)).named_parameters())
    words = {name: value for name, value in whole.items() if not name.startswith("visual.")}
    return build(RESNET, to_openai_keys({**words, **state}), source="here"), state


@torch.no_grad()
def test_a_resnet_is_a_frozen_image_tower() -> None:
    clip, state = resnet()
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(9))
    expected = literal_resnet(state, images)
    assert float((clip.encode_image(images) - expected).norm() / expected.norm()) < 1e-5


def test_a_resnet_takes_prompts_of_the_text_tower_alone(picture) -> None:  # type: ignore[no-untyped-def]
    clip, _ = resnet()
    for method in ("zero_shot", "tpt", "taps"):
        settings = {} if method == "zero_shot" else {"views": 4, "fraction": 0.5, "prompts": "hand"}
        assert np.isfinite(Learner(clip, NAMES, method, **settings).predict_one(picture(0)).probs).all()
    with pytest.raises(PromptsError, match="of RN is made of convolutions: use coop"):
        Maple().initial(clip, torch.Generator())
    with pytest.raises(PromptsError, match="is made of convolutions, which take no prompts"):
        clip.encode_image(torch.zeros(1, 3, 64, 64), torch.zeros(1, 2, 8))
    with pytest.raises(PromptsError, match="no tokens to align"):
        clip.image_layers(torch.zeros(1, 3, 64, 64), None, [0])


@pytest.mark.parametrize(
    "method", ["taps", "tpt", "maple", "maple+tpt", "promptalign", "taps+", "zero_shot+"]
)
@pytest.mark.parametrize("kind", ["H", "SigLIP"])
def test_methods_run_on_relatives(kind: str, method: str, picture) -> None:  # type: ignore[no-untyped-def]
    clip = made(kind).float()
    prompts = Maple().initial(clip, torch.Generator().manual_seed(0), depth=2)
    settings: dict[str, object] = {}
    if method not in ("tpt", "zero_shot+"):
        settings["prompts"] = prompts
    if method == "promptalign":
        settings["source"] = made_up_stats(clip, prompts)
    if method not in ("zero_shot+", "maple"):
        settings |= {"views": 4, "fraction": 0.5}
    learner = Learner(clip, NAMES, method, **settings)
    for step in range(3):
        prediction = learner.predict_one(picture(step))
        assert np.isfinite(prediction.probs).all()
        assert math.isclose(float(prediction.probs.sum()), 1.0, abs_tol=1e-5)
        if prediction.ask:
            learner.learn_one(prediction.id, NAMES[step])
