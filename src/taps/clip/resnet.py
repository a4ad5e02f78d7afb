"""OpenAI's ResNets as frozen image towers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.clip.config import ClipConfig
from taps.clip.convolution import ConvolutionTower, fold_norm, norm_names
from taps.clip.layers import Conv
from taps.clip.ops import attend

WIDER = 4  # a block's output is this many times as wide as its middle


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3, 1 × 1; where the picture shrinks it is averaged, not skipped over."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = Conv(inputs, width, 1)
        self.conv2 = Conv(width, width, 3, padding=1)
        self.conv3 = Conv(width, WIDER * width, 1)
        self.downsample = Conv(inputs, WIDER * width, 1) if stride > 1 or inputs != WIDER * width else None

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.conv2(F.relu(self.conv1(x))))
        inner = self.conv3(F.avg_pool2d(inner, self.stride))
        if self.downsample is not None:
            x = self.downsample(F.avg_pool2d(x, self.stride))
        return F.relu(x + inner)


class ResNetTower(ConvolutionTower):
    """Images → features: three convolutions, four stages of blocks, attention from the places' mean."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        width, self.heads, self.stages = config.vision_width, config.vision_heads, len(config.stages)
        self.conv1 = Conv(3, width // 2, 3, stride=2, padding=1)
        self.conv2 = Conv(width // 2, width // 2, 3, padding=1)
        self.conv3 = Conv(width // 2, width, 3, padding=1)
        inputs = width
        for stage, blocks in enumerate(config.stages):
            middle, made = width * 2**stage, []
            for block in range(blocks):
                made.append(Bottleneck(inputs, middle, 2 if stage and not block else 1))
                inputs = WIDER * middle
            self.add_module(f"layer{stage + 1}", nn.Sequential(*made))
        self.positional_embedding = nn.Parameter(torch.empty(config.patches + 1, inputs))
        self.in_proj_weight = nn.Parameter(torch.empty(3 * inputs, inputs))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * inputs))
        self.proj = nn.Parameter(torch.empty(inputs, config.embed_dim))
        self.proj_bias = nn.Parameter(torch.empty(config.embed_dim))

    def features(self, images: Tensor) -> Tensor:
        x = F.relu(self.conv3(F.relu(self.conv2(F.relu(self.conv1(images))))))
        x = F.avg_pool2d(x, 2)
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(dim=1, keepdim=True), x], dim=1) + self.positional_embedding
        seen = attend(x[:, :1], x, self.in_proj_weight, self.in_proj_bias, self.heads)
        return seen[:, 0] @ self.proj + self.proj_bias


def fold_norms(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A ResNet's weights in OpenAI's names → ours: each convolution with the norm after it, as one."""
    folded = dict(state)
    for norm in norm_names(state):
        conv = norm.replace("downsample.1", "downsample.0").replace(".bn", ".conv")
        fold_norm(folded, norm, conv, conv.replace("downsample.0", "downsample"))
    pool = "visual.attnpool."
    parts = [f"{pool}{letter}_proj" for letter in "qkv"]
    for end in ("weight", "bias"):
        folded[f"visual.in_proj_{end}"] = torch.cat([folded.pop(f"{part}.{end}") for part in parts])
    folded["visual.proj"] = folded.pop(f"{pool}c_proj.weight").T
    folded["visual.proj_bias"] = folded.pop(f"{pool}c_proj.bias")
    folded["visual.positional_embedding"] = folded.pop(f"{pool}positional_embedding")
    return folded
