"""The step as the public codes compute it, written afresh: what `taps bench step` compares with.

Every class text is padded to the full 77 tokens and encoded with gradients, all views and the whole labelled
memory go through one graph in one batch, the forward runs under fp16 autocast with a gradient scaler on CUDA,
and the texts are encoded once more to predict. It reads the weights of a `Clip` but has a forward of
its own, so that it can also judge whether the fast step's numbers are right. Slow where the public codes are
slow, nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from taps.model.clip import Clip
from taps.model.clip.layout import token_rows
from taps.model.clip.transformer import Block
from taps.model.clip.vision import VisionTower
from taps.model.prompts import Prompts
from taps.model.prompts.texts import class_texts


@dataclass(frozen=True)
class ReferenceResult:
    """What one step computed.

    Attributes:
        loss: H_t + α · mean cross-entropy of the memory, before the update.
        entropy: H_t.
        gradient: Of the loss, by name of the learned tensor.
        logits: Of view 0 after the update [K].
    """

    loss: Tensor
    entropy: Tensor
    gradient: dict[str, Tensor]
    logits: Tensor


class ReferenceStep:
    """MaPLe prompts, tuned on one image at a time the published way.

    Args:
        clip: The weights; float32 (or float64) for autocast to start from.
        classes: Class names.
        prompts: MaPLe prompts θ0.
        lr: Learning rate.
        weight_decay: Of AdamW.
        weight_ce: α.
        fraction: ρ.
        reset: "sample" or "never".
        half: fp16 autocast and loss scaling; what the public codes use on CUDA.
    """

    def __init__(
        self,
        clip: Clip,
        classes: Sequence[str],
        prompts: Prompts,
        *,
        lr: float = 4e-3,
        weight_decay: float = 0.01,
        weight_ce: float = 1.0,
        fraction: float = 0.1,
        reset: str = "sample",
        half: bool = False,
    ) -> None:
        self.clip, self.half, self.reset = clip, half, reset
        self.lr, self.weight_decay, self.weight_ce, self.fraction = lr, weight_decay, weight_ce, fraction
        device, dtype = clip.device, clip.dtype
        self.start = {name: value.to(device, dtype) for name, value in prompts.parameters.items()}
        length, context = clip.config.context_length, prompts.parameters["context"].shape[0]
        texts = [text for (text,) in class_texts(classes, prompts.suffix)]
        rows = token_rows(texts, context=context, limit=length)
        self.ids = torch.tensor([row + [0] * (length - len(row)) for row in rows], device=device)
        self.ends = torch.tensor([len(row) - 1 for row in rows], device=clip.device)
        self.mask = torch.full((length, length), float("-inf"), device=device, dtype=dtype).triu(1)
        self.images = torch.empty(
            0, 3, clip.config.image_size, clip.config.image_size, device=device, dtype=dtype
        )
        self.labels = torch.empty(0, dtype=torch.long, device=clip.device)
        self._restart()

    def remember(self, pixels: Tensor, labels: Tensor) -> None:
        """Put labelled images, pixels 0..255 [N, 3, S, S], into the memory."""
        self.images = torch.cat([self.images, self.clip.preprocess(pixels)])
        self.labels = torch.cat([self.labels, labels.to(self.clip.device)])

    def __call__(self, views: Tensor) -> ReferenceResult:
        """One step for the views of one image."""
        if self.reset == "sample":
            self._restart()
        images = self.clip.preprocess(views)
        with self._autocast():
            logits = self._logits(torch.cat([images, self.images]))
            scores, remembered = logits[: len(images)].float(), logits[len(images) :].float()
            if self.clip.dtype == torch.float64:
                scores, remembered = logits[: len(images)], logits[len(images) :]
            entropy = self._entropy(scores)
            loss = entropy
            if len(remembered):
                loss = loss + self.weight_ce * F.cross_entropy(remembered, self.labels)
        self.optimiser.zero_grad()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.unscale_(self.optimiser)
        gradient = {name: leaf.grad for name, leaf in self.leaves.items() if leaf.grad is not None}
        self.scaler.step(self.optimiser)
        self.scaler.update()
        with torch.no_grad(), self._autocast():
            return ReferenceResult(loss.detach(), entropy.detach(), gradient, self._logits(images[:1])[0])

    def _restart(self) -> None:
        self.leaves = {name: value.clone().requires_grad_() for name, value in self.start.items()}
        self.optimiser = torch.optim.AdamW(self.leaves.values(), lr=self.lr, weight_decay=self.weight_decay)
        self.scaler = torch.amp.GradScaler("cuda", init_scale=1000.0, enabled=self.half)

    def _autocast(self) -> AbstractContextManager[None]:
        return torch.autocast("cuda", torch.float16, enabled=self.half)

    def _entropy(self, scores: Tensor) -> Tensor:
        logs = scores.log_softmax(dim=1)
        each = -(logs.exp() * logs).sum(dim=1)
        kept = each.argsort()[: max(1, int(len(scores) * self.fraction))]
        average = logs[kept].logsumexp(dim=0) - math.log(len(kept))
        average = average.clamp(min=torch.finfo(average.dtype).min)
        return -(average * average.exp()).sum()

    def _logits(self, images: Tensor) -> Tensor:
        text = torch.cat([self.leaves["context"][None], self.leaves["deep"]])
        coupled = zip(text, self.leaves["coupling.weight"], self.leaves["coupling.bias"], strict=True)
        vision = torch.stack([F.linear(row, weight, bias) for row, weight, bias in coupled])
        image_features = F.normalize(self._encode_images(images, vision), dim=-1)
        text_features = F.normalize(self._encode_texts(text), dim=-1)
        return self.clip.logit_scale.exp() * image_features @ text_features.T

    def _encode_texts(self, context: Tensor) -> Tensor:
        x, tokens = self.clip.token_embedding(self.ids), context.shape[1]
        for index, block in enumerate(self.clip.transformer.resblocks):
            if index < len(context):
                learned = context[index].to(x.dtype).expand(len(x), -1, -1)
                x = torch.cat([x[:, :1], learned, x[:, 1 + tokens :]], dim=1)
            if index == 0:
                x = x + self.clip.positional_embedding
            x = _block(block, x, self.mask)
        x = self.clip.ln_final(x)
        ends: Tensor = x[torch.arange(len(x), device=x.device), self.ends]
        assert self.clip.text_projection is not None
        return ends @ self.clip.text_projection

    def _encode_images(self, images: Tensor, prompts: Tensor) -> Tensor:
        tower, tokens = self.clip.visual, prompts.shape[1]
        assert isinstance(tower, VisionTower)
        assert tower.class_embedding is not None
        assert tower.ln_pre is not None
        assert tower.proj is not None  # OpenAI's architecture
        x = tower.conv1(images).flatten(2).transpose(1, 2)
        x = torch.cat([tower.class_embedding.to(x.dtype).expand(len(x), 1, -1), x], dim=1)
        x = x + tower.positional_embedding
        x = tower.ln_pre(torch.cat([x, prompts[0].to(x.dtype).expand(len(x), -1, -1)], dim=1))
        for index, block in enumerate(tower.transformer.resblocks):
            if 0 < index < len(prompts):
                x = torch.cat([x[:, :-tokens], prompts[index].to(x.dtype).expand(len(x), -1, -1)], dim=1)
            x = _block(block, x, None)
        first: Tensor = tower.ln_post(x[:, 0])
        return first @ tower.proj


def _block(block: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    """A transformer block over every token of every sequence."""
    assert isinstance(block, Block)
    attn, heads = block.attn, block.attn.heads
    projected = F.linear(block.ln_1(x), attn.in_proj_weight, attn.in_proj_bias)
    q, k, v = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in projected.chunk(3, dim=-1))
    mask = None if mask is None else mask.to(q.dtype)
    seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    x = x + attn.out_proj(seen.transpose(1, 2).flatten(2))
    return x + block.mlp(block.ln_2(x))  # type: ignore[no-any-return]
