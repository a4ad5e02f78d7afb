"""Image towers of convolutions, which take no prompts: ResNet, ConvNeXt (LAION) and FastViT (MobileCLIP).

Batch norms and branches are folded into the convolutions when weights are read (`taps.model.clip.keys`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.errors import PromptsError
from taps.model.clip.config import ClipConfig
from taps.model.clip.ops import attend, self_attention
from taps.model.clip.transformer import Attention, Conv, Linear, Mlp, parameter

WIDER = 4  # a ResNet block's output is this many times as wide as its middle
HEAD = 32  # channels of a FastViT attention head
ATTENTION_FROM = 3  # FastViT's first stage with attention; earlier stages convolve
LARGE = 5  # stages of the large FastViTs, which have layer norms and squeeze only at the end


class ConvolutionTower(nn.Module):
    """Images → features."""

    def features(self, images: Tensor) -> Tensor:
        """Projected features [batch, embed] of images [batch, 3, height, width]."""
        raise NotImplementedError

    def tokens(self, images: Tensor) -> Tensor:
        """The images themselves: the tower has no tokens."""
        return images

    def block_inputs(self, images: Tensor, prompts: Tensor | None, layers: Sequence[int]) -> list[Tensor]:
        raise PromptsError(
            "The image tower is made of convolutions: it has no tokens to align; use a method without."
        )

    def forward(
        self, images: Tensor, prompts: Tensor | None, layers: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        return self.features(images), self.block_inputs(images, prompts, layers) if layers else []


class Bottleneck(nn.Module):
    """ResNet block of 1 × 1, 3 × 3 and 1 × 1 convolutions; strides are average pooling."""

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
    """Three convolutions, four stages of blocks, attention pooling with the mean as the query."""

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
        self.positional_embedding = parameter(config.patches + 1, inputs)
        self.in_proj_weight = parameter(3 * inputs, inputs)
        self.in_proj_bias = parameter(3 * inputs)
        self.proj = parameter(inputs, config.embed_dim)
        self.proj_bias = parameter(config.embed_dim)

    def features(self, images: Tensor) -> Tensor:
        x = F.relu(self.conv3(F.relu(self.conv2(F.relu(self.conv1(images))))))
        x = F.avg_pool2d(x, 2)
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(dim=1, keepdim=True), x], dim=1) + self.positional_embedding
        pooled = attend(x[:, :1], x, self.in_proj_weight, self.in_proj_bias, self.heads)
        return pooled[:, 0] @ self.proj + self.proj_bias


def make_stage(blocks: Iterable[nn.Module], **before: nn.Module) -> nn.Sequential:
    """Blocks of one width, with the named layers before them."""
    return nn.Sequential(OrderedDict(before, blocks=nn.Sequential(*blocks)))


class ChannelsLastConv(Conv):
    """A convolution of [batch, height, width, channels]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class ConvNextBlock(nn.Module):
    """A 7 × 7 convolution of each channel, then a hidden layer at each position."""

    def __init__(self, width: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.conv_dw = ChannelsLastConv(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.mlp = Mlp(width, hidden, "gelu")
        self.gamma = parameter(width)

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.mlp(self.norm(self.conv_dw(x)))
        return x + self.gamma * inner


class ConvNextTower(ConvolutionTower):
    """Patches of 4 × 4, stages of doubling width, the mean over positions, a projection.

    Large models have a hidden layer before the projection.
    """

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        width, hidden, eps = config.vision_width, config.vision_mlp, config.vision_eps
        self.stem = nn.Sequential(ChannelsLastConv(3, width, 4, stride=4), nn.LayerNorm(width, eps=eps))
        self.stages = nn.Sequential()
        for stage, count in enumerate(config.stages):
            downsample = nn.Sequential()
            if stage:
                halve = ChannelsLastConv(width, 2 * width, 2, stride=2)
                downsample = nn.Sequential(nn.LayerNorm(width, eps=eps), halve)
                width, hidden = 2 * width, 2 * hidden
            blocks = [ConvNextBlock(width, hidden, eps) for _ in range(count)]
            self.stages.append(make_stage(blocks, downsample=downsample))
        self.ln_post = nn.LayerNorm(width, eps=eps)
        self.hidden = Linear(width, 2 * config.embed_dim) if config.vision_projection_hidden else None
        inputs = width if self.hidden is None else 2 * config.embed_dim
        self.proj = parameter(inputs, config.embed_dim)

    def features(self, images: Tensor) -> Tensor:
        x = self.stages(self.stem(images.permute(0, 2, 3, 1)))
        x = self.ln_post(x.mean(dim=(1, 2)))
        return (x if self.hidden is None else F.gelu(self.hidden(x))) @ self.proj


class Squeeze(nn.Module):
    """Squeeze and excitation: channels weighted by what the whole image holds."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = Conv(width, hidden, 1)
        self.fc2 = Conv(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = F.relu(self.fc1(x.mean(dim=(2, 3), keepdim=True)))
        return x * torch.sigmoid(self.fc2(mean))


class ActiveConv(Conv):
    """A convolution, squeeze and excitation (where `squeeze`, its hidden width, is not 0), and GELU."""

    def __init__(
        self, inputs: int, width: int, size: int, *, stride: int = 1, groups: int = 1, squeeze: int = 0
    ) -> None:
        super().__init__(inputs, width, size, stride=stride, padding=size // 2, groups=groups)
        self.se = Squeeze(width, squeeze) if squeeze else None

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        return F.gelu(x if self.se is None else self.se(x))


class ConvMlp(nn.Module):
    """A 7 × 7 convolution of each channel, then a hidden layer at each position."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.conv = Conv(width, width, 7, padding=3, groups=width)
        self.c_fc = Conv(width, hidden, 1)
        self.c_proj = Conv(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(self.conv(x))))  # type: ignore[no-any-return]


class MixerBlock(nn.Module):
    """A 3 × 3 convolution of each channel, then `ConvMlp`."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.token_mixer = Conv(width, width, 3, padding=1, groups=width)
        self.mlp = ConvMlp(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = self.token_mixer(x)
        return x + self.mlp(x)  # type: ignore[no-any-return]


class AttentionBlock(nn.Module):
    """Attention over the positions, then `ConvMlp`. Small models have a batch norm first, folded away."""

    def __init__(self, width: int, hidden: int, eps: float, *, normed: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=eps) if normed else None
        self.attn = Attention(width, width // HEAD)
        self.mlp = ConvMlp(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).transpose(1, 2)
        normed = tokens if self.norm is None else self.norm(tokens)
        attended = self.attn.out(self_attention(self.attn.project(normed), self.attn.heads))
        x = x + attended.transpose(1, 2).reshape(x.shape)
        return x + self.mlp(x)  # type: ignore[no-any-return]


class FastVitTower(ConvolutionTower):
    """A stem of stride 4, stages of doubling width, the mean over positions, a projection."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        first = config.vision_width
        self.stem = nn.Sequential(
            ActiveConv(3, first, 3, stride=2),
            ActiveConv(first, first, 3, stride=2, groups=first),
            ActiveConv(first, first, 1),
        )
        self.stages = nn.Sequential(*(_fastvit_stage(config, stage) for stage in range(len(config.stages))))
        last = first * 2 ** (len(config.stages) - 1)
        self.final_conv = ActiveConv(last, 2 * last, 3, groups=last, squeeze=last // 8)
        self.proj = parameter(2 * last, config.embed_dim)
        self.proj_bias = parameter(config.embed_dim)

    def features(self, images: Tensor) -> Tensor:
        x = self.final_conv(self.stages(self.stem(images)))
        return x.mean(dim=(2, 3)) @ self.proj + self.proj_bias  # type: ignore[no-any-return]


def _fastvit_stage(config: ClipConfig, stage: int) -> nn.Sequential:
    width, hidden = config.vision_width * 2**stage, config.vision_mlp * 2**stage
    count, large = config.stages[stage], len(config.stages) == LARGE
    downsample = nn.Sequential()
    if stage:
        squeeze = 0 if large or stage < ATTENTION_FROM - 1 else width // 4
        downsample.append(
            ActiveConv(width // 2, width, 7, stride=2, groups=width // 2, squeeze=squeeze),
        )
        downsample.append(ActiveConv(width, width, 1))
    if stage < ATTENTION_FROM:
        return make_stage((MixerBlock(width, hidden) for _ in range(count)), downsample=downsample)
    blocks = (AttentionBlock(width, hidden, config.vision_eps, normed=large) for _ in range(count))
    positions = Conv(width, width, 7, padding=3, groups=width)
    return make_stage(blocks, downsample=downsample, pos_emb=positions)
