"""CLIP, its prompts and one step of TAPS as the equations say it: float64, loops, nothing clever.

Only weights and the form of statistics are the package's; every line of arithmetic is written here anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from taps.model.clip import Clip
from taps.model.prompts import Prompts
from taps.model.prompts.source import SourceStats

State = dict[str, Tensor]


def layer_norm(x: Tensor, state: State, name: str) -> Tensor:
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * state[f"{name}.weight"] + state[f"{name}.bias"]


def activate(x: Tensor, kind: str) -> Tensor:
    if kind == "quick_gelu":
        return x / (1 + (-1.702 * x).exp())
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def block(x: Tensor, state: State, name: str, heads: int, kind: str, mask: Tensor | None) -> Tensor:
    """One block on one sequence [tokens, width]; `mask` is added to the scores."""
    width = x.shape[1]
    size = width // heads
    joined = layer_norm(x, state, f"{name}.ln_1") @ state[f"{name}.attn.in_proj_weight"].T
    joined = joined + state[f"{name}.attn.in_proj_bias"]
    outputs = []
    for head in range(heads):
        columns = slice(head * size, (head + 1) * size)
        q, k, v = (joined[:, part * width : (part + 1) * width][:, columns] for part in range(3))
        scores = q @ k.T / math.sqrt(size)
        outputs.append(torch.softmax(scores if mask is None else scores + mask, dim=-1) @ v)
    attended = torch.cat(outputs, dim=1)
    x = x + attended @ state[f"{name}.attn.out_proj.weight"].T + state[f"{name}.attn.out_proj.bias"]
    hidden = layer_norm(x, state, f"{name}.ln_2") @ state[f"{name}.mlp.c_fc.weight"].T
    hidden = activate(hidden + state[f"{name}.mlp.c_fc.bias"], kind)
    return x + hidden @ state[f"{name}.mlp.c_proj.weight"].T + state[f"{name}.mlp.c_proj.bias"]


def text_feature(
    state: State, ids: Sequence[int], heads: int, layers: int, kind: str, context: Tensor | None = None
) -> Tensor:
    """One text in all 77 positions, padded, under a causal mask; read at its end marker."""
    length = state["positional_embedding"].shape[0]
    tokens = 0 if context is None else context.shape[1]
    row = [49406, *[0] * tokens, *ids, 49407]
    end = len(row) - 1
    row = row + [0] * (length - len(row))
    x = state["token_embedding.weight"][torch.tensor(row)]
    if context is not None:
        x = torch.cat([x[:1], context[0], x[1 + tokens :]])
    x = x + state["positional_embedding"]
    mask = torch.full((length, length), -math.inf, dtype=x.dtype).triu(1)
    for index in range(layers):
        if context is not None and 0 < index < len(context):
            x = torch.cat([x[:1], context[index], x[1 + tokens :]])
        x = block(x, state, f"transformer.resblocks.{index}", heads, kind, mask)
    return layer_norm(x[end], state, "ln_final") @ state["text_projection"]


def image_feature(
    state: State, image: Tensor, heads: int, layers: int, kind: str, prompts: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """One image [3, S, S] → its feature and the input of every block."""
    kernel = state["visual.conv1.weight"]
    size = kernel.shape[2]
    patches = []
    for top in range(0, image.shape[1], size):
        for left in range(0, image.shape[2], size):
            patch = image[:, top : top + size, left : left + size]
            patches.append((kernel * patch).sum(dim=(1, 2, 3)))
    x = torch.stack([state["visual.class_embedding"], *patches]) + state["visual.positional_embedding"]
    count = len(x)
    if prompts is not None:
        x = torch.cat([x, prompts[0]])
    x = layer_norm(x, state, "visual.ln_pre")
    inputs = []
    for index in range(layers):
        if prompts is not None and 0 < index < len(prompts):
            x = torch.cat([x[:count], prompts[index]])
        inputs.append(x)
        x = block(x, state, f"visual.transformer.resblocks.{index}", heads, kind, None)
    return layer_norm(x[0], state, "visual.ln_post") @ state["visual.proj"], inputs


class Literal:
    """A model's weights in double precision and the few numbers that are not in them."""

    def __init__(self, clip: object) -> None:
        config = clip.config  # type: ignore[attr-defined]
        self.state: State = {
            name: value.detach().double()
            for name, value in clip.state_dict().items()  # type: ignore[attr-defined]
        }
        self.config = config
        self.text_numbers = (config.text_heads, config.text_layers, config.activation)
        self.vision_numbers = (config.vision_heads, config.vision_layers, config.activation)

    def text(self, ids: Sequence[Sequence[int]], context: Tensor | None = None) -> Tensor:
        return torch.stack([text_feature(self.state, row, *self.text_numbers, context) for row in ids])

    def image(self, images: Tensor, prompts: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        pairs = [image_feature(self.state, image, *self.vision_numbers, prompts) for image in images]
        layers = zip(*(inputs for _, inputs in pairs), strict=True)
        return torch.stack([feature for feature, _ in pairs]), [torch.stack(layer) for layer in layers]

    def pixels(self, views: Tensor) -> Tensor:
        mean = torch.tensor(self.config.mean, dtype=torch.float64)[:, None, None]
        std = torch.tensor(self.config.std, dtype=torch.float64)[:, None, None]
        return (views.double() / 255 - mean) / std

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        images = images / images.norm(dim=1, keepdim=True)
        texts = texts / texts.norm(dim=1, keepdim=True)
        return self.state["logit_scale"].exp() * images @ texts.T


def maple_tokens(parameters: State) -> tuple[Tensor, Tensor]:
    """Text tokens of every depth, and the vision tokens each is coupled to."""
    text = [parameters["context"], *parameters["deep"]]
    vision = [
        tokens @ weight.T + bias
        for tokens, weight, bias in zip(
            text, parameters["coupling.weight"], parameters["coupling.bias"], strict=True
        )
    ]
    return torch.stack(text), torch.stack(vision)


def entropy(probabilities: Tensor) -> Tensor:
    return -sum(p * p.log() for p in probabilities)  # type: ignore[return-value]


def align(
    form: str,
    features: Sequence[Tensor],
    means: Sequence[Tensor],
    variances: Sequence[Tensor],
    fresh: Sequence[int],
) -> Tensor:
    """L_coarse or L_fine of one set of views: per block the distance of means and of biased variances.

    The last tokens of a block, as many as `fresh` says, are prompts just put in: they differ from nothing.
    """
    total = torch.zeros((), dtype=torch.float64)
    for feature, mean, variance, prompts in zip(features, means, variances, fresh, strict=True):
        own = sum(feature) / len(feature)
        spread = sum((one - own) ** 2 for one in feature) / len(feature)
        differs = torch.tensor([[token < len(mean) - prompts] for token in range(len(mean))])
        apart = ((own - mean).abs() + (spread - variance).abs()) * differs
        if form == "paper":
            total = total + apart.sum() / len(features)
        else:
            total = total + 100 * (apart / 2).mean() / 3
    return total


@dataclass(frozen=True)
class Labelled:
    """A labelled image: its view 0, its class, and the views its statistics are taken of."""

    pixels: Tensor
    label: int
    views: Tensor | None = None


@dataclass(frozen=True)
class Source:
    """Statistics of the chosen blocks: [blocks, tokens, width], whole and of each class."""

    layers: tuple[int, ...]
    mean: Tensor
    variance: Tensor
    class_means: Tensor
    class_variances: Tensor

    def stats(self, classes: Sequence[str], clip: Clip, prompts: Prompts) -> SourceStats:
        """As the package reads them, of a model and its prompts."""
        return SourceStats(
            layers=self.layers,
            count=9,
            mean=self.mean,
            variance=self.variance,
            classes=tuple(classes),
            class_counts=torch.full((len(classes),), 3),
            class_means=self.class_means,
            class_variances=self.class_variances,
            model=clip.fingerprint,
            prompts=prompts.fingerprint,
        )


def draw_source(layers: tuple[int, ...], tokens: int, width: int, classes: int) -> Source:
    generator = torch.Generator().manual_seed(77)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, len(layers), tokens, width, generator=generator, dtype=torch.float64)

    return Source(layers, draw(), draw() ** 2, draw(classes), draw(classes) ** 2)


@dataclass(frozen=True)
class Weights:
    """α, β, γ, the share of views kept, and the form of alignment."""

    ce: float = 1.0
    coarse: float = 0.0
    fine: float = 0.0
    entropy: float = 1.0
    fraction: float = 0.25
    form: str = "promptalign"


@dataclass(frozen=True)
class Judged:
    """The whole loss at given prompts, H_t, the confident views, each labelled image's cross-entropy."""

    loss: Tensor
    entropy: Tensor
    chosen: list[int]
    cross_entropies: list[float]


def judge(
    model: Literal,
    kind: str,
    parameters: State,
    ids: Sequence[Sequence[int]],
    views: Tensor,
    memory: Sequence[Labelled],
    weights: Weights,
    source: Source | None = None,
) -> Judged:
    """L = H + α · mean CE + β · L_coarse + γ · mean L_fine, all of it in one graph."""
    context, vision = maple_tokens(parameters) if kind == "maple" else (parameters["context"][None], None)
    texts = model.text(ids, context)
    features, layers = model.image(model.pixels(views), vision)
    rows = torch.softmax(model.logits(features, texts), dim=1)
    order = sorted(range(len(rows)), key=lambda view: (entropy(rows[view]).item(), view))
    chosen = order[: max(1, int(weights.fraction * len(rows)))]
    uncertainty = entropy(sum(rows[view] for view in chosen) / len(chosen))
    loss = weights.entropy * uncertainty
    losses = []
    for item in memory:
        feature, _ = model.image(model.pixels(item.pixels[None]), vision)
        losses.append(-torch.log_softmax(model.logits(feature, texts)[0], dim=0)[item.label])
    if losses:
        loss = loss + weights.ce * sum(losses) / len(losses)
    prompted, added = (0, 0) if vision is None else vision.shape[:2]
    fresh = [added if layer < prompted else 0 for layer in (source.layers if source is not None else ())]
    if weights.coarse and source is not None:
        used = chosen if weights.form == "promptalign" else range(len(rows))
        own = [torch.stack([layers[layer][view] for view in used]) for layer in source.layers]
        loss = loss + weights.coarse * align(weights.form, own, source.mean, source.variance, fresh)
    if weights.fine and source is not None and memory:
        apart = []
        for item in memory:
            assert item.views is not None
            _, inner = model.image(model.pixels(item.views), vision)
            own = [inner[layer] for layer in source.layers]
            targets = source.class_means[item.label], source.class_variances[item.label]
            apart.append(align(weights.form, own, *targets, fresh))
        loss = loss + weights.fine * sum(apart) / len(apart)
    return Judged(loss, uncertainty.detach(), chosen, [value.item() for value in losses])


@dataclass
class Adam:
    """AdamW of Loshchilov and Hutter, one number at a time."""

    lr: float
    decay: float = 0.01
    count: int = 0
    first: State = field(default_factory=dict)
    second: State = field(default_factory=dict)

    def step(self, parameters: State, gradients: State) -> State:
        self.count += 1
        moved = {}
        for name, value in parameters.items():
            gradient = gradients[name]
            self.first[name] = 0.9 * self.first.get(name, torch.zeros_like(value)) + 0.1 * gradient
            self.second[name] = 0.999 * self.second.get(name, torch.zeros_like(value)) + 0.001 * gradient**2
            mean = self.first[name] / (1 - 0.9**self.count)
            square = self.second[name] / (1 - 0.999**self.count)
            moved[name] = value - self.lr * self.decay * value - self.lr * mean / (square.sqrt() + 1e-8)
        return moved


def predict(
    model: Literal, kind: str, parameters: State, ids: Sequence[Sequence[int]], view: Tensor
) -> Tensor:
    """Probabilities of one view."""
    context, vision = maple_tokens(parameters) if kind == "maple" else (parameters["context"][None], None)
    feature, _ = model.image(model.pixels(view[None]), vision)
    return torch.softmax(model.logits(feature, model.text(ids, context))[0], dim=0)
