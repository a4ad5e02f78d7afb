"""FastViT as a frozen image tower, for MobileCLIP: convolutions, and attention where the picture is small.

It is trained with several convolutions and norms side by side that add up to one convolution each; files
hold them one by one, and `fold_branches` adds them up when weights are read.
"""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.clip.config import ClipConfig
from taps.clip.convolution import ConvolutionTower, take_norm
from taps.clip.layers import Attention, Conv
from taps.clip.ops import self_attention

State = dict[str, Tensor]
HEAD = 32  # channels of an attention head
ATTENTION_FROM = 3  # the first stage that attends; those before it convolve
LARGE = 5  # stages of the large models, which have layer norms and squeeze only at the end


class Squeeze(nn.Module):
    """Weighs channels by what the whole picture holds (squeeze and excitation)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = Conv(width, hidden, 1)
        self.fc2 = Conv(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = F.relu(self.fc1(x.mean(dim=(2, 3), keepdim=True)))
        return x * torch.sigmoid(self.fc2(seen))


class ActiveConv(Conv):
    """A convolution, the channels weighed if `squeeze` says by how narrow a layer, and GELU."""

    def __init__(
        self, inputs: int, width: int, size: int, *, stride: int = 1, groups: int = 1, squeeze: int = 0
    ) -> None:
        super().__init__(inputs, width, size, stride=stride, padding=size // 2, groups=groups)
        self.se = Squeeze(width, squeeze) if squeeze else None

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        return F.gelu(x if self.se is None else self.se(x))


class ConvMlp(nn.Module):
    """Each channel by itself over 7 × 7 places, then a hidden layer over the channels of each place."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.conv = Conv(width, width, 7, padding=3, groups=width)
        self.c_fc = Conv(width, hidden, 1)
        self.c_proj = Conv(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(self.conv(x))))  # type: ignore[no-any-return]


class MixerBlock(nn.Module):
    """Neighbours are mixed channel by channel, then `ConvMlp`."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.token_mixer = Conv(width, width, 3, padding=1, groups=width)
        self.mlp = ConvMlp(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = self.token_mixer(x)
        return x + self.mlp(x)  # type: ignore[no-any-return]


class AttentionBlock(nn.Module):
    """Attention over the places, then `ConvMlp`. Small models have a batch norm first, folded away."""

    def __init__(self, width: int, hidden: int, eps: float, *, normed: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=eps) if normed else None
        self.attn = Attention(width, width // HEAD)
        self.mlp = ConvMlp(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        places = x.flatten(2).transpose(1, 2)
        normed = places if self.norm is None else self.norm(places)
        seen = self.attn.out(self_attention(self.attn.project(normed), self.attn.heads))
        x = x + seen.transpose(1, 2).reshape(x.shape)
        return x + self.mlp(x)  # type: ignore[no-any-return]


class Stage(nn.Module):
    """Half the side and twice the channels, unless it is the first; then blocks."""

    def __init__(self, config: ClipConfig, stage: int) -> None:
        super().__init__()
        width, hidden = config.vision_width * 2**stage, config.vision_mlp * 2**stage
        large, attends = len(config.stages) == LARGE, stage >= ATTENTION_FROM
        self.downsample = self.pos_emb = None
        if stage:
            squeeze = 0 if large or stage < ATTENTION_FROM - 1 else width // 4
            self.downsample = nn.Sequential(
                ActiveConv(width // 2, width, 7, stride=2, groups=width // 2, squeeze=squeeze),
                ActiveConv(width, width, 1),
            )
        if attends:
            self.pos_emb = Conv(width, width, 7, padding=3, groups=width)
        self.blocks = nn.Sequential(
            *(
                AttentionBlock(width, hidden, config.vision_eps, normed=large)
                if attends
                else MixerBlock(width, hidden)
                for _ in range(config.stages[stage])
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.downsample is not None:
            x = self.downsample(x)
        if self.pos_emb is not None:
            x = self.pos_emb(x)
        return self.blocks(x)  # type: ignore[no-any-return]


class FastVitTower(ConvolutionTower):
    """A stem that quarters the side, stages of twice the width each, the mean over places, a projection."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        first = config.vision_width
        self.stem = nn.Sequential(
            ActiveConv(3, first, 3, stride=2),
            ActiveConv(first, first, 3, stride=2, groups=first),
            ActiveConv(first, first, 1),
        )
        self.stages = nn.Sequential(*(Stage(config, stage) for stage in range(len(config.stages))))
        last = first * 2 ** (len(config.stages) - 1)
        self.final_conv = ActiveConv(last, 2 * last, 3, groups=last, squeeze=last // 8)
        self.proj = nn.Parameter(torch.empty(2 * last, config.embed_dim))
        self.proj_bias = nn.Parameter(torch.empty(config.embed_dim))

    def features(self, images: Tensor) -> Tensor:
        x = self.final_conv(self.stages(self.stem(images)))
        return x.mean(dim=(2, 3)) @ self.proj + self.proj_bias  # type: ignore[no-any-return]


def fold_branches(state: State) -> State:
    """Convolutions and norms that stand side by side, summed up; what scales a block's result, multiplied in.

    Weights that were summed up before stay as they are.
    """
    made = {re.sub(r"\.reparam_conv\.|(?<=\.downsample)\.proj\.", ".", key): state[key] for key in state}
    for key in list(made):
        prefix = re.sub(r"\.(conv_kxk\.0|large_conv|pos_enc|token_mixer\.qkv)\.weight$", "", key)
        if key.endswith((".conv_kxk.0.weight", ".large_conv.weight")):
            _sum_branches(made, prefix, key.removesuffix(".weight"))
        elif key.endswith(".pos_enc.weight"):
            made[f"{prefix}.weight"] = _with_identity(made.pop(key), torch.ones(len(state[key])))
            made[f"{prefix}.bias"] = made.pop(f"{prefix}.pos_enc.bias")
        elif key.endswith(".token_mixer.qkv.weight"):
            _fold_attention(made, prefix)
    for key in [key for key in made if key.endswith(".token_mixer.mixer.weight")]:
        _fold_mixer(made, key.removesuffix(".mixer.weight"))
    for key in [key for key in made if key.endswith(".gamma")]:
        _scale(made, key)
    return {key: value.float() if value.dtype == torch.float64 else value for key, value in made.items()}


def _with_identity(kernel: Tensor, scale: Tensor) -> Tensor:
    """A kernel plus the one that passes each channel on, times its scale."""
    rows, middle = torch.arange(len(kernel)), kernel.shape[-1] // 2
    kernel = kernel.double().clone()
    kernel[rows, rows % kernel.shape[1], middle, middle] += scale
    return kernel


def _sum_branches(made: State, prefix: str, main: str) -> None:
    kernel, bias = made.pop(f"{main}.weight").double(), made.pop(f"{main}.bias").double()
    for name in (f"{prefix}.conv_scale", f"{prefix}.small_conv"):
        if f"{name}.weight" in made:
            small = made.pop(f"{name}.weight")
            kernel = kernel + F.pad(small, [(kernel.shape[-1] - small.shape[-1]) // 2] * 4)
            bias = bias + made.pop(f"{name}.bias")
    if f"{prefix}.identity.running_var" in made:
        scale, shift = take_norm(made, f"{prefix}.identity")
        kernel, bias = _with_identity(kernel, scale), bias + shift
    made[f"{prefix}.weight"], made[f"{prefix}.bias"] = kernel, bias


def _fold_mixer(made: State, prefix: str) -> None:
    """x + gamma · (mixer(x) − norm(x)), as one convolution."""
    scale, shift = take_norm(made, f"{prefix}.norm.identity")
    gamma = made.pop(f"{prefix}.layer_scale.gamma").double().flatten()
    mixer = made.pop(f"{prefix}.mixer.weight") * gamma[:, None, None, None]
    made[f"{prefix}.weight"] = _with_identity(mixer, 1 - gamma * scale)
    made[f"{prefix}.bias"] = gamma * (made.pop(f"{prefix}.mixer.bias") - shift)


def _fold_attention(made: State, prefix: str) -> None:
    """A batch norm before the projections goes into them; a layer norm stays."""
    weight = made.pop(f"{prefix}.token_mixer.qkv.weight").double()
    bias = weight.new_zeros(len(weight))
    if f"{prefix}.norm.running_var" in made:
        scale, shift = take_norm(made, f"{prefix}.norm")
        weight, bias = weight * scale, weight @ shift
    made[f"{prefix}.attn.in_proj_weight"], made[f"{prefix}.attn.in_proj_bias"] = weight, bias
    for end in ("weight", "bias"):
        made[f"{prefix}.attn.out_proj.{end}"] = made.pop(f"{prefix}.token_mixer.proj.{end}")


def _scale(made: State, key: str) -> None:
    """What a layer's result is multiplied with goes into the layer."""
    prefix, scale = key.rsplit(".", 2)[0], made.pop(key).double().flatten()
    layer = f"{prefix}.attn.out_proj" if ".layer_scale_1." in key else f"{prefix}.mlp.c_proj"
    weight = made[f"{layer}.weight"]
    made[f"{layer}.weight"] = weight * scale.view(-1, *[1] * (weight.ndim - 1))
    made[f"{layer}.bias"] = made[f"{layer}.bias"] * scale
