"""ConvNeXt, FastViT and MobileCLIP's stem: frozen image towers of convolutions, and what runs on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from taps import Learner, load_clip
from taps.errors import PromptsError, SettingsError, WeightsError
from taps.files import write_tensors
from taps.model.clip import Clip, ClipConfig
from taps.model.clip.config import architectures, builtin_config
from taps.model.clip.find import ModelFiles, write_directory
from taps.model.clip.formats import open_clip_config
from taps.model.clip.keys import to_openai_keys
from taps.model.clip.model import initialise
from taps.model.clip.weights import build
from taps.model.prompts.maple import Maple
from taps.study.training.stats import check_layers

NAMES = ("cat", "dog", "fire truck")
SMALL = replace(builtin_config("tiny"), image_size=64, patch_size=32, vision_layers=0, vision_heads=1)
CONVNEXT = replace(
    SMALL, name="convnext", vision_tower="convnext", vision_width=8, vision_mlp=24, stages=(1, 2, 1)
)
FASTVIT = replace(
    SMALL, name="fastvit", vision_tower="fastvit", vision_width=8, vision_mlp=24, stages=(2, 1, 1, 1)
)
LARGE = replace(FASTVIT, name="large", patch_size=64, stages=(1, 1, 1, 1, 1))
STEM = replace(builtin_config("tiny"), name="stem", patch_stem=True, patch_bias=True, ln_pre=False)


class Published:
    """Random weights under timm's names, made when they are first asked for, in double precision."""

    def __init__(self) -> None:
        self.state: dict[str, Tensor] = {}
        self.generator = torch.Generator().manual_seed(0)

    def single(self) -> dict[str, Tensor]:
        """All of them as a file holds them; counts stay counts."""
        return {key: value.float() if value.ndim else value for key, value in self.state.items()}

    def take(self, name: str, *shape: int, low: float = -1.0, high: float = 1.0) -> Tensor:
        values = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        return self.state.setdefault(f"visual.trunk.{name}", low + (high - low) * values)

    def conv(self, x: Tensor, name: str, out: int, size: int, *, stride: int = 1, groups: int = 1) -> Tensor:
        inputs = x.shape[1] // groups
        bound = 1.5 / (inputs * size**2) ** 0.5
        kernel = self.take(f"{name}.weight", out, inputs, size, size, low=-bound, high=bound)
        return F.conv2d(x, kernel, stride=stride, padding=size // 2, groups=groups)

    def biased(self, x: Tensor, name: str, out: int, size: int = 1, groups: int = 1) -> Tensor:
        return self.conv(x, name, out, size, groups=groups) + self.take(f"{name}.bias", out)[:, None, None]

    def norm(self, x: Tensor, name: str) -> Tensor:
        self.state[f"visual.trunk.{name}.num_batches_tracked"] = torch.tensor(3)
        parts = [("running_mean", -1.0), ("running_var", 0.3), ("weight", 0.3), ("bias", -1.0)]
        taken = [self.take(f"{name}.{part}", x.shape[1], low=low) for part, low in parts]
        return F.batch_norm(x, *taken, eps=1e-5)

    def conv_norm(self, x: Tensor, name: str, out: int, size: int, stride: int, groups: int) -> Tensor:
        return self.norm(self.conv(x, f"{name}.conv", out, size, stride=stride, groups=groups), f"{name}.bn")

    def squeezed(self, x: Tensor, name: str, hidden: int) -> Tensor:
        seen = F.relu(self.biased(x.mean(dim=(2, 3), keepdim=True), f"{name}.fc1", hidden))
        return x * torch.sigmoid(self.biased(seen, f"{name}.fc2", x.shape[1]))

    def one(self, x: Tensor, name: str, out: int, size: int, *, stride: int = 1, groups: int = 1) -> Tensor:
        """MobileOne's block as it is trained: a convolution, a small one and the input, each normed."""
        total = self.conv_norm(x, f"{name}.conv_kxk.0", out, size, stride, groups)
        if size > 1:
            total = total + self.conv_norm(x, f"{name}.conv_scale", out, 1, stride, groups)
        if stride == 1 and x.shape[1] == out:
            total = total + self.norm(x, f"{name}.identity")
        return total

    def mlp(self, x: Tensor, name: str, hidden: int, scale: str) -> Tensor:
        width = x.shape[1]
        inner = self.conv_norm(x, f"{name}.mlp.conv", width, 7, 1, width)
        inner = F.gelu(self.biased(inner, f"{name}.mlp.fc1", hidden))
        inner = self.biased(inner, f"{name}.mlp.fc2", width)
        return x + self.take(f"{name}.{scale}.gamma", width, 1, 1) * inner

    def mixer(self, x: Tensor, name: str, hidden: int) -> Tensor:
        width = x.shape[1]
        mixed = self.one(x, f"{name}.token_mixer.mixer", width, 3, groups=width)
        mixed = mixed - self.norm(x, f"{name}.token_mixer.norm.identity")
        x = x + self.take(f"{name}.token_mixer.layer_scale.gamma", width, 1, 1) * mixed
        return self.mlp(x, name, hidden, "layer_scale")

    def attention(self, x: Tensor, name: str, hidden: int, *, large: bool) -> Tensor:
        batch, width, height, _ = x.shape
        if large:
            weight, bias = (self.take(f"{name}.norm.{part}", width) for part in ("weight", "bias"))
            normed = F.layer_norm(x.permute(0, 2, 3, 1), (width,), weight, bias, 1e-5)
        else:
            normed = self.norm(x, f"{name}.norm").permute(0, 2, 3, 1)
        qkv = normed.flatten(1, 2) @ self.take(f"{name}.token_mixer.qkv.weight", 3 * width, width).T
        q, k, v = qkv.view(batch, -1, 3, width // 32, 32).permute(2, 0, 3, 1, 4)
        seen = torch.softmax(q @ k.transpose(2, 3) / 32**0.5, dim=-1) @ v
        seen = seen.transpose(1, 2).flatten(2) @ self.take(f"{name}.token_mixer.proj.weight", width, width).T
        seen = seen + self.take(f"{name}.token_mixer.proj.bias", width)
        seen = seen.transpose(1, 2).reshape(batch, width, height, height)
        x = x + self.take(f"{name}.layer_scale_1.gamma", width, 1, 1) * seen
        return self.mlp(x, name, hidden, "layer_scale_2")

    def fastvit(self, images: Tensor, config: ClipConfig) -> Tensor:
        """The tower as it is trained: nothing folded, nothing summed up before it is applied."""
        width, large = config.vision_width, len(config.stages) == 5
        x = F.gelu(self.one(images.double(), "stem.0", width, 3, stride=2))
        x = F.gelu(self.one(x, "stem.1", width, 3, stride=2, groups=width))
        x = F.gelu(self.one(x, "stem.2", width, 1))
        for stage, blocks in enumerate(config.stages):
            name, wide = f"stages.{stage}", width * 2**stage
            if stage:
                p = f"{name}.downsample.proj"
                down = self.conv_norm(x, f"{p}.0.large_conv", wide, 7, 2, wide // 2)
                down = down + self.conv_norm(x, f"{p}.0.small_conv", wide, 3, 2, wide // 2)
                if stage >= 2 and not large:
                    down = self.squeezed(down, f"{p}.0.se", wide // 4)
                x = F.gelu(self.one(F.gelu(down), f"{p}.1", wide, 1))
            if stage >= 3:
                x = x + self.biased(x, f"{name}.pos_emb.pos_enc", wide, 7, groups=wide)
            for block in range(blocks):
                hidden = 3 * wide
                if stage < 3:
                    x = self.mixer(x, f"{name}.blocks.{block}", hidden)
                else:
                    x = self.attention(x, f"{name}.blocks.{block}", hidden, large=large)
        wide = x.shape[1]
        x = self.one(x, "final_conv", 2 * wide, 3, groups=wide)
        x = F.gelu(self.squeezed(x, "final_conv.se", wide // 8)).mean(dim=(2, 3))
        head = self.take("head.fc.weight", config.embed_dim, 2 * wide)
        return x @ head.T + self.take("head.fc.bias", config.embed_dim)


def words(config: ClipConfig) -> dict[str, Tensor]:
    """Random weights of all but the image tower."""
    made = initialise(Clip(config), torch.Generator().manual_seed(3))
    return {name: value for name, value in made.named_parameters() if not name.startswith("visual.")}


def pictures(config: ClipConfig) -> Tensor:
    size = config.image_size
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(5))


def fastvit(config: ClipConfig) -> tuple[dict[str, Tensor], Tensor]:
    """A file's weights, and the features of two pictures by the literal tower."""
    published = Published()
    features = published.fastvit(pictures(config), config)
    return {**words(config), **published.single()}, features


def agree(ours: Tensor, theirs: Tensor) -> None:
    assert ours.shape == theirs.shape
    apart = theirs[1] - theirs[0]
    assert float(apart.norm() / theirs.norm()) > 1e-2
    assert float((ours - theirs).norm() / apart.norm()) < 1e-4


@pytest.mark.parametrize("config", [FASTVIT, LARGE], ids=["small", "large"])
@torch.no_grad()
def test_fastvit_is_the_tower_it_was_trained_as(config: ClipConfig, tmp_path: Path) -> None:
    """Published files hold branches and norms one by one; here each is one convolution."""
    if config is FASTVIT:  # heads are 32 wide
        config = replace(config, vision_width=16, vision_mlp=48)
    state, expected = fastvit(config)
    clip = build(config, to_openai_keys(state), source="here")
    agree(clip.encode_image(pictures(config)), expected)
    write_tensors(tmp_path / "s.safetensors", state)
    write_directory(ModelFiles(config, tmp_path / "s.safetensors"), tmp_path / "imported")
    again = load_clip(tmp_path / "imported", device="cpu")
    assert again.fingerprint == clip.fingerprint
    assert torch.equal(again.encode_image(pictures(config)), clip.encode_image(pictures(config)))
    del state["visual.trunk.stages.1.downsample.proj.0.small_conv.bn.bias"]
    with pytest.raises(WeightsError, match=r"lack visual\.stages\.1\.downsample.*\.bn\.bias"):
        to_openai_keys(state)


@torch.no_grad()
def test_a_stem_of_convolutions_before_the_patches() -> None:
    """MobileCLIP B: strides 4, 2, 2, norm and GELU after the first two; the class token has no place."""
    clip = initialise(Clip(STEM), torch.Generator().manual_seed(1))
    state = {name: value.clone() for name, value in clip.named_parameters()}
    literal = Published()
    x = pictures(STEM).double()
    for index, (out, size, inputs) in enumerate(((16, 4, 3), (16, 2, 16))):
        kernel = literal.take(f"patch_embed.backbone.{index}.conv.weight", out, inputs, size, size)
        x = F.gelu(literal.norm(F.conv2d(x, kernel, stride=size), f"patch_embed.backbone.{index}.bn"))
    kernel = literal.take("patch_embed.backbone.2.conv.weight", 64, 16, 1, 1)
    bias = literal.take("patch_embed.backbone.2.conv.bias", 64)
    places = literal.take("pos_embed", 1, 16, 64)
    patches = F.conv2d(x, kernel, bias).flatten(2).transpose(1, 2) + places
    for name in [name for name in state if name.startswith(("visual.stem", "visual.conv1", "visual.pos"))]:
        del state[name]
    clip = build(STEM, to_openai_keys({**state, **literal.single()}), source="here")
    tokens = clip.image_tokens(pictures(STEM))
    assert torch.allclose(tokens[:, 1:].double(), patches, atol=1e-4)
    assert torch.equal(tokens[0, 0], state["visual.class_embedding"])
    prompts = torch.randn(2, 2, 64, generator=torch.Generator().manual_seed(2))
    assert not torch.allclose(clip.encode_image(tokens, prompts), clip.encode_image(tokens))


@pytest.mark.parametrize("config", [CONVNEXT, replace(FASTVIT, vision_width=16)], ids=lambda each: each.name)
def test_methods_on_convolutions(config: ClipConfig, picture) -> None:  # type: ignore[no-untyped-def]
    """Text prompts, heads, caches and features run; what needs tokens of an image says so in a sentence."""
    clip = initialise(Clip(config), torch.Generator().manual_seed(0))
    for method in ("zero_shot", "tpt", "taps", "taps+", "view_ensemble", "tda"):
        settings = {} if method in ("zero_shot", "tda") else {"views": 4, "fraction": 0.5}
        learner = Learner(clip, NAMES, method, **settings)
        prediction = learner.predict_one(picture(0))
        assert np.isfinite(prediction.probs).all()
        if prediction.ask:
            learner.learn_one(prediction.id, "dog")
    for method in ("maple", "promptalign"):
        with pytest.raises(PromptsError, match="made of convolutions: use coop"):
            Learner(clip, NAMES, method)
    with pytest.raises(PromptsError, match="made of convolutions: use coop"):
        Maple().initial(clip, torch.Generator())
    with pytest.raises(SettingsError, match="made of convolutions"):
        Learner(clip, NAMES, "tent")
    with pytest.raises(SettingsError, match="convolutions and has no tokens to take statistics of"):
        check_layers([0, 1], clip)
    with pytest.raises(PromptsError, match="which take no prompts; use prompts of the text tower"):
        clip.encode_image(pictures(config), torch.zeros(1, 2, 8))


def test_an_open_clip_configuration_names_the_tower() -> None:
    """By timm's name for it; whether a hidden layer stands before the projection is said beside it."""
    text = {"width": 768, "heads": 12, "layers": 16}
    vision = {"timm_model_name": "convnext_large", "timm_pool": "", "timm_proj": "mlp", "image_size": 320}
    said = {"model_cfg": {"embed_dim": 768, "vision_cfg": vision, "text_cfg": text}}
    name = "convnext_large_d_320"
    assert open_clip_config(said, name=name) == builtin_config(name)
    vision["timm_proj"] = "linear"
    assert not open_clip_config(said, name=name).vision_projection_hidden


def test_towers_are_as_large_as_published() -> None:
    """Millions of weights: MobileCLIP's as its authors count them, summed up; others' as open_clip does."""
    published = {
        "MobileCLIP-S1": 84.9, "MobileCLIP-S2": 99.1, "MobileCLIP2-S3": 248.7, "convnext_base": 151.5,
        "convnext_base_w": 179.4, "convnext_large_d": 351.8, "convnext_xxlarge": 1200.6,
        "ViT-SO400M-14-SigLIP-384": 878.0,
    }  # fmt: skip
    assert {name: round(architectures()[name]["parameters"] / 1e6, 1) for name in published} == published
