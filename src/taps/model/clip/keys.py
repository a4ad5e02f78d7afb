"""Weights of every published layout → this package's own: OpenAI's names, batch norms and branches folded.

Layouts: OpenAI's and open_clip's; open_clip's with a text tower of its own (`text.`) or an image tower of
timm's (`visual.trunk.`); Hugging Face's CLIP and SigLIP.
"""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.errors import WeightsError

State = dict[str, Tensor]
Renames = list[tuple[str, str]]

# OpenAI's archives carry these numbers beside the weights; they only repeat the architecture.
OPENAI_NUMBERS = ("input_resolution", "context_length", "vocab_size")
HUGGING_FACE: Renames = [
    (r"^text_model\.embeddings\.token_embedding\.", "token_embedding."),
    (r"^text_model\.embeddings\.position_embedding\.weight$", "positional_embedding"),
    (r"^text_model\.final_layer_norm\.", "ln_final."),
    (r"^text_model\.encoder\.layers\.", "transformer.resblocks."),
    (r"^text_model\.head\.", "text_projection."),
    (r"^vision_model\.embeddings\.class_embedding$", "visual.class_embedding"),
    (r"^vision_model\.embeddings\.patch_embedding\.", "visual.conv1."),
    (r"^vision_model\.embeddings\.position_embedding\.weight$", "visual.positional_embedding"),
    (r"^vision_model\.pre_layrnorm\.", "visual.ln_pre."),
    (r"^vision_model\.post_layernorm\.", "visual.ln_post."),
    (r"^vision_model\.encoder\.layers\.", "visual.transformer.resblocks."),
    (r"^vision_model\.head\.attention\.", "visual.pool.attn."),
    (r"^vision_model\.head\.layernorm\.", "visual.pool.ln."),
    (r"^vision_model\.head\.", "visual.pool."),
    (r"^visual_projection\.", "visual.proj."),
    (r"\.layer_norm([12])\.", r".ln_\1."),
    (r"\.mlp\.fc1\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
    (r"\.self_attn\.", ".attn."),
]
OPEN_CLIP: Renames = [
    (r"^text\.", ""),
    (r"^visual\.trunk\.patch_embed\.(proj|backbone\.2\.conv)\.", "visual.conv1."),
    (r"^visual\.trunk\.patch_embed\.backbone\.", "visual.stem."),
    (r"^visual\.trunk\.cls_token$", "visual.class_embedding"),
    (r"^visual\.trunk\.pos_embed$", "visual.positional_embedding"),
    (r"^visual\.trunk\.norm_pre\.", "visual.ln_pre."),
    (r"^visual\.trunk\.norm\.", "visual.ln_post."),
    (r"^visual\.trunk\.head\.norm\.", "visual.ln_post."),
    (r"^visual\.trunk\.head\.(fc\.)?", "visual.proj."),
    (r"^visual\.head\.(proj|mlp\.fc2)\.", "visual.proj."),
    (r"^visual\.head\.mlp\.fc1\.", "visual.hidden."),
    (r"^visual\.trunk\.attn_pool\.latent$", "visual.pool.probe"),
    (r"^visual\.trunk\.attn_pool\.(q|kv)\.", r"visual.pool.attn.\1_proj."),
    (r"^visual\.trunk\.attn_pool\.proj\.", "visual.pool.attn.out_proj."),
    (r"^visual\.trunk\.attn_pool\.norm\.", "visual.pool.ln."),
    (r"^visual\.trunk\.attn_pool\.", "visual.pool."),
    (r"^visual\.trunk\.blocks\.", "visual.transformer.resblocks."),
    (r"^visual\.trunk\.", "visual."),
    (r"\.norm([12])\.", r".ln_\1."),
    (r"\.attn\.qkv\.(weight|bias)$", r".attn.in_proj_\1"),
    (r"\.attn\.proj\.", ".attn.out_proj."),
    (r"\.attn\.norm\.", ".attn.ln."),
    (r"\.mlp\.norm\.", ".mlp.ln."),
    (r"\.mlp\.fc1_g\.", ".mlp.c_gate."),
    (r"\.mlp\.fc1(_x)?\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
]
RESNET: Renames = [
    (r"^visual\.attnpool\.c_proj\.", "visual.proj."),
    (r"^visual\.attnpool\.", "visual."),
    (r"\.(conv[123])\.", r".\1.conv."),
    (r"\.bn([123])\.", r".conv\1.bn."),
    (r"\.downsample\.0\.", ".downsample.conv."),
    (r"\.downsample\.1\.", ".downsample.bn."),
]
PARTS = (("q", "k", "v"), ("q", "kv"))
BN_EPS = 1e-5


def to_openai_keys(state: State) -> State:
    """Any known layout → OpenAI's key names and shapes."""
    state = dequantise(state)
    if any(key.startswith("vision_model.") for key in state):
        renames = HUGGING_FACE
    else:
        renames = OPEN_CLIP + (RESNET if "visual.attnpool.c_proj.weight" in state else [])
    # Some files keep an index 0..n, or what can be computed.
    extra = re.compile(r".*\.position_ids|.*attn_mask|visual\.trunk\.rope\..*")
    renamed = {}
    for key, value in state.items():
        if key not in OPENAI_NUMBERS and not extra.fullmatch(key):
            for pattern, new in renames:
                key = re.sub(pattern, new, key)
            renamed[key] = value
    try:
        return _join_projections(_flatten(_fold(renamed)))
    except KeyError as error:
        raise WeightsError(f"The weights lack {error.args[0]}.") from None


def _flatten(state: State) -> State:
    """Projections as plain matrices, transposed; learned tokens without leading dimensions of 1."""
    flat = dict(state)
    for name in ("visual.proj", "text_projection"):
        if f"{name}.weight" in flat:
            flat[name] = flat.pop(f"{name}.weight").T
        if f"{name}.bias" in flat:
            flat[f"{name}_bias"] = flat.pop(f"{name}.bias")
    positions = flat.get("visual.positional_embedding")
    if "visual.stem.0.weight" in flat and positions is not None and positions.ndim == 3:
        # MobileCLIP's class token has no position embedding.
        flat["visual.positional_embedding"] = F.pad(positions[0], (0, 0, 1, 0))
    for name, dimensions in (("class_embedding", 1), ("positional_embedding", 2)):
        if (token := flat.get(f"visual.{name}")) is not None and token.ndim == 3:
            flat[f"visual.{name}"] = token.flatten(0, 3 - dimensions)
    weight = flat.get("visual.conv1.weight")
    if weight is not None and weight.ndim == 2 and weight.shape[1] % 3 == 0:
        side = round((weight.shape[1] / 3) ** 0.5)  # SigLIP 2's: pixels of a patch row by row, colours last
        flat["visual.conv1.weight"] = weight.view(-1, side, side, 3).permute(0, 3, 1, 2)
    for name in ("logit_scale", "logit_bias"):
        if name in flat and flat[name].numel() == 1:
            flat[name] = flat[name].reshape(())
    return flat


def _join_projections(state: State) -> State:
    """Separate query, key and value weights → one matrix. EVA's keys have no bias: it is zero."""
    joined = {key: value for key, value in state.items() if not re.search(r"\.(q|k|v|kv)_proj\.", key)}
    for key in state:
        if not key.endswith(".q_proj.weight"):
            continue
        prefix = key.removesuffix("q_proj.weight")
        letters = next((parts for parts in PARTS if f"{prefix}{parts[1]}_proj.weight" in state), PARTS[0])
        weights = [f"{prefix}{letter}_proj.weight" for letter in letters]
        joined[f"{prefix}in_proj_weight"] = torch.cat([state[name] for name in weights])
        biases = [name.replace("weight", "bias") for name in weights]
        given = {name: state[name] for name in biases if name in state}
        if f"{prefix}ln.weight" in state:
            given.setdefault(biases[1], torch.zeros_like(given[biases[0]]))
        joined[f"{prefix}in_proj_bias"] = torch.cat([given[name] for name in biases])
    return joined


def dequantise(state: State) -> State:
    """int8 rows with a scale each (`name` and `name.scale`) → float32."""
    scales = {key for key in state if key.endswith(".scale") and key.removesuffix(".scale") in state}
    plain = {key: value for key, value in state.items() if key not in scales}
    for key in scales:
        name = key.removesuffix(".scale")
        rows = state[key].float().reshape(-1, *[1] * (plain[name].ndim - 1))
        plain[name] = plain[name].float() * rows
    return plain


def _fold(state: State) -> State:
    """Batch norms and parallel branches, folded into one convolution each."""
    folded = dict(state)
    for key in state:
        if key.endswith(".bn.running_var"):
            name = key.removesuffix(".bn.running_var")
            scale, shift = _take_norm(folded, f"{name}.bn")
            kernel = folded.pop(f"{name}.conv.weight").double() * scale[:, None, None, None]
            folded[f"{name}.weight"], folded[f"{name}.bias"] = kernel.float(), shift.float()
    is_fastvit = any(key.startswith("visual.final_conv.") for key in folded)
    return _fold_branches(folded) if is_fastvit else folded


def _take_norm(state: State, name: str) -> tuple[Tensor, Tensor]:
    """A frozen batch norm as x · scale + shift per channel; its tensors are removed from the state."""
    weight, bias, mean, variance = (
        state.pop(f"{name}.{part}").double() for part in ("weight", "bias", "running_mean", "running_var")
    )
    state.pop(f"{name}.num_batches_tracked", None)
    scale = weight / (variance + BN_EPS).sqrt()
    return scale, bias - mean * scale


def _fold_branches(state: State) -> State:
    """FastViT's parallel convolutions and norms summed up, and layer scales multiplied in.

    Weights that are summed up already stay as they are.
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
    """A kernel plus the identity kernel, scaled by channel."""
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
        scale, shift = _take_norm(made, f"{prefix}.identity")
        kernel, bias = _with_identity(kernel, scale), bias + shift
    made[f"{prefix}.weight"], made[f"{prefix}.bias"] = kernel, bias


def _fold_mixer(made: State, prefix: str) -> None:
    """x + gamma · (mixer(x) − norm(x)), as one convolution."""
    scale, shift = _take_norm(made, f"{prefix}.norm.identity")
    gamma = made.pop(f"{prefix}.layer_scale.gamma").double().flatten()
    mixer = made.pop(f"{prefix}.mixer.weight") * gamma[:, None, None, None]
    made[f"{prefix}.weight"] = _with_identity(mixer, 1 - gamma * scale)
    made[f"{prefix}.bias"] = gamma * (made.pop(f"{prefix}.mixer.bias") - shift)


def _fold_attention(made: State, prefix: str) -> None:
    """A batch norm before the projections is folded into them; a layer norm stays."""
    weight = made.pop(f"{prefix}.token_mixer.qkv.weight").double()
    bias = weight.new_zeros(len(weight))
    if f"{prefix}.norm.running_var" in made:
        scale, shift = _take_norm(made, f"{prefix}.norm")
        weight, bias = weight * scale, weight @ shift
    made[f"{prefix}.attn.in_proj_weight"], made[f"{prefix}.attn.in_proj_bias"] = weight, bias
    for end in ("weight", "bias"):
        made[f"{prefix}.attn.out_proj.{end}"] = made.pop(f"{prefix}.token_mixer.proj.{end}")


def _scale(made: State, key: str) -> None:
    """A layer scale, multiplied into the layer before it."""
    prefix, scale = key.rsplit(".", 2)[0], made.pop(key).double().flatten()
    layer = f"{prefix}.attn.out_proj" if ".layer_scale_1." in key else f"{prefix}.mlp.c_proj"
    weight = made[f"{layer}.weight"]
    made[f"{layer}.weight"] = weight * scale.view(-1, *[1] * (weight.ndim - 1))
    made[f"{layer}.bias"] = made[f"{layer}.bias"] * scale
