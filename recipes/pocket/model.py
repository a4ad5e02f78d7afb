"""The pocket CLIP at training time: OpenAI's layout and key names, nothing else.

Written for speed on an accelerator (short texts, drop path, pre-projection features); the state
dict is what `export.py` stores and what any CLIP loader of that layout reads.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class PocketConfig:
    embed_dim: int = 384
    image_size: int = 64
    patch_size: int = 8
    vision_width: int = 256
    vision_layers: int = 9
    vision_heads: int = 4
    text_width: int = 256
    text_layers: int = 6
    text_heads: int = 4
    context_length: int = 77
    vocab_size: int = 49408

    def as_json(self) -> dict[str, Any]:
        return {"name": "pocket", **asdict(self), "activation": "gelu", "mean": list(MEAN), "std": list(STD)}


class Attention(nn.Module):
    """Multi-head self-attention with the parameter names of torch's own module."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        n, t, c = x.shape
        qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, v = qkv.view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.out_proj(y.transpose(1, 2).reshape(n, t, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(width, 4 * width))
        self.mlp.add_module("gelu", nn.GELU())
        self.mlp.add_module("c_proj", nn.Linear(4 * width, width))
        self.drop = drop

    def _path(self, branch: Tensor) -> Tensor:
        """Stochastic depth: a whole branch is dropped for a sample, the rest scaled up."""
        if not self.training or self.drop == 0:
            return branch
        keep = torch.rand(branch.shape[0], 1, 1, device=branch.device) >= self.drop
        return branch * (keep.to(branch.dtype) / (1 - self.drop))

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        x = x + self._path(self.attn(self.ln_1(x), causal))
        return x + self._path(self.mlp(self.ln_2(x)))


class Transformer(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, drop: float = 0.0) -> None:
        super().__init__()
        rates = [drop * i / max(1, layers - 1) for i in range(layers)]
        self.resblocks = nn.ModuleList([Block(width, heads, rate) for rate in rates])
        for block in self.resblocks:
            nn.init.normal_(block.attn.in_proj_weight, std=width**-0.5)
            nn.init.normal_(block.attn.out_proj.weight, std=(width * 2 * layers) ** -0.5)
            nn.init.zeros_(block.attn.out_proj.bias)
            nn.init.normal_(block.mlp.c_fc.weight, std=(2 * width) ** -0.5)
            nn.init.normal_(block.mlp.c_proj.weight, std=(width * 2 * layers) ** -0.5)

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        for block in self.resblocks:
            x = block(x, causal)
        return x


class Vision(nn.Module):
    def __init__(self, cfg: PocketConfig, drop: float) -> None:
        super().__init__()
        width, tokens = cfg.vision_width, (cfg.image_size // cfg.patch_size) ** 2 + 1
        self.conv1 = nn.Conv2d(3, width, cfg.patch_size, cfg.patch_size, bias=False)
        self.class_embedding = nn.Parameter(torch.randn(width) * width**-0.5)
        self.positional_embedding = nn.Parameter(torch.randn(tokens, width) * width**-0.5)
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = Transformer(width, cfg.vision_layers, cfg.vision_heads, drop)
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(torch.randn(width, cfg.embed_dim) * width**-0.5)

    def trunk(self, x: Tensor) -> Tensor:
        """The CLS token after ln_post, before the projection."""
        return self.tapped(x, 0)[0]

    def tapped(self, x: Tensor, tap: int) -> tuple[Tensor, Tensor]:
        """`trunk`'s output, and the patch tokens as they stand before block `tap`."""
        x = self.conv1(x).flatten(2).transpose(1, 2)
        cls = self.class_embedding.to(x.dtype).expand(x.shape[0], 1, -1)
        x = torch.cat([cls, x], dim=1) + self.positional_embedding.to(x.dtype)
        x = self.ln_pre(x)
        for block in self.transformer.resblocks[:tap]:
            x = block(x, False)
        patches = x[:, 1:]
        for block in self.transformer.resblocks[tap:]:
            x = block(x, False)
        return self.ln_post(x[:, 0]), patches


class Pocket(nn.Module):
    def __init__(self, cfg: PocketConfig, drop: float = 0.0) -> None:
        super().__init__()
        self.cfg = cfg
        self.visual = Vision(cfg, drop)
        self.transformer = Transformer(cfg.text_width, cfg.text_layers, cfg.text_heads)
        self.token_embedding = nn.Embedding(cfg.vocab_size, cfg.text_width)
        self.positional_embedding = nn.Parameter(torch.randn(cfg.context_length, cfg.text_width) * 0.01)
        self.ln_final = nn.LayerNorm(cfg.text_width)
        self.text_projection = nn.Parameter(torch.randn(cfg.text_width, cfg.embed_dim) * cfg.text_width**-0.5)
        self.logit_scale = nn.Parameter(torch.tensor(20.0).log())
        nn.init.normal_(self.token_embedding.weight, std=0.02)

    def encode_image(self, x: Tensor) -> Tensor:
        return self.visual.trunk(x) @ self.visual.proj

    def encode_text(self, ids: Tensor) -> Tensor:
        """`ids` may be shorter than the context: attention is causal, so padding never matters."""
        x = self.token_embedding(ids) + self.positional_embedding[: ids.shape[1]]
        x = self.ln_final(self.transformer(x, causal=True))
        return x[torch.arange(len(x), device=x.device), ids.argmax(1)] @ self.text_projection
