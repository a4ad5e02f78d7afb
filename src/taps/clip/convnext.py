"""ConvNeXt as a frozen image tower, for LAION's CLIPs of that kind."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.clip.config import ClipConfig
from taps.clip.convolution import ConvolutionTower
from taps.clip.layers import Conv, Linear, Mlp


def convolve(conv: nn.Module, x: Tensor) -> Tensor:
    """A convolution of pictures whose channels come last [batch, height, width, channels]."""
    return conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)  # type: ignore[no-any-return]


class Block(nn.Module):
    """Each channel by itself over 7 × 7 places, then a hidden layer over the channels of each place."""

    def __init__(self, width: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.conv_dw = Conv(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.mlp = Mlp(width, hidden, "gelu")
        self.gamma = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.mlp(self.norm(convolve(self.conv_dw, x)))
        return x + self.gamma * inner


class Stage(nn.Module):
    """Half the side and `width` channels, unless it is the first; then blocks."""

    def __init__(self, inputs: int, width: int, hidden: int, blocks: int, eps: float) -> None:
        super().__init__()
        self.downsample = None
        if inputs != width:
            self.downsample = nn.Sequential(nn.LayerNorm(inputs, eps=eps), Conv(inputs, width, 2, stride=2))
        self.blocks = nn.Sequential(*(Block(width, hidden, eps) for _ in range(blocks)))

    def forward(self, x: Tensor) -> Tensor:
        if self.downsample is not None:
            norm, conv = self.downsample
            x = convolve(conv, norm(x))
        return self.blocks(x)  # type: ignore[no-any-return]


class ConvNextTower(ConvolutionTower):
    """Patches of 4 × 4, stages of twice the width each, the mean over places, a projection.

    Large models have a hidden layer before the projection.
    """

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        first, eps, count = config.vision_width, config.vision_eps, len(config.stages)
        self.stem = nn.Sequential(Conv(3, first, 4, stride=4), nn.LayerNorm(first, eps=eps))
        widths = [first * 2**stage for stage in range(count)]
        hidden = [config.vision_mlp * 2**stage for stage in range(count)]
        sizes = zip([first, *widths], widths, hidden, config.stages, strict=False)
        self.stages = nn.Sequential(*(Stage(*each, eps) for each in sizes))
        width = widths[-1]
        self.ln_post = nn.LayerNorm(width, eps=eps)
        self.hidden = Linear(width, 2 * config.embed_dim) if config.vision_projection_hidden else None
        inputs = width if self.hidden is None else 2 * config.embed_dim
        self.proj = nn.Parameter(torch.empty(inputs, config.embed_dim))

    def features(self, images: Tensor) -> Tensor:
        conv, norm = self.stem
        x = self.stages(norm(convolve(conv, images.permute(0, 2, 3, 1))))
        x = self.ln_post(x.mean(dim=(1, 2)))
        return (x if self.hidden is None else F.gelu(self.hidden(x))) @ self.proj
