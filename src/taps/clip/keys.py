"""Names of weights: each layout found in the wild is turned into OpenAI's, which are this package's own.

Layouts: OpenAI's and open_clip's; open_clip's with a text tower of its own (`text.`) or an image tower of
timm's (`visual.trunk.`); Hugging Face's CLIP and SigLIP.
"""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from torch import Tensor

from taps.clip.convolution import fold_norm, norm_names
from taps.clip.fastvit import fold_branches
from taps.clip.resnet import fold_norms
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
PARTS = (("q", "k", "v"), ("q", "kv"))


def to_openai_keys(state: State) -> State:
    """Any known layout → OpenAI's key names and shapes."""
    state = dequantise(state)
    hugging_face = any(key.startswith("vision_model.") for key in state)
    # Some files keep an index 0..n, or what can be computed.
    extra = re.compile(r".*\.position_ids|.*attn_mask|visual\.trunk\.rope\..*")
    kept = {
        key: value for key, value in state.items() if key not in OPENAI_NUMBERS and not extra.fullmatch(key)
    }
    renamed = {_rename(key, HUGGING_FACE if hugging_face else OPEN_CLIP): kept[key] for key in kept}
    try:
        return _join_projections(_flatten(_fold(renamed)))
    except KeyError as error:
        raise WeightsError(f"The weights lack {error.args[0]}.") from None


def _fold(state: State) -> State:
    """Convolutions that are summed up, with the norms around them, into one each."""
    if "visual.attnpool.c_proj.weight" in state:
        return fold_norms(state)
    folded = dict(state)
    for norm in norm_names(state):
        if (name := norm.removesuffix(".bn")) != norm:
            fold_norm(folded, norm, f"{name}.conv", name)
    branches = any(key.startswith("visual.final_conv.") for key in folded)
    return fold_branches(folded) if branches else folded


def _rename(key: str, renames: Renames) -> str:
    for pattern, new in renames:
        key = re.sub(pattern, new, key)
    return key


def _flatten(state: State) -> State:
    """Linear layers that are plain matrices here, turned; leading ones of learned tokens dropped."""
    flat = dict(state)
    for name in ("visual.proj", "text_projection"):
        if f"{name}.weight" in flat:
            flat[name] = flat.pop(f"{name}.weight").T
        if f"{name}.bias" in flat:
            flat[f"{name}_bias"] = flat.pop(f"{name}.bias")
    places = flat.get("visual.positional_embedding")
    if "visual.stem.0.weight" in flat and places is not None and places.ndim == 3:
        # MobileCLIP's class token has no place of its own.
        flat["visual.positional_embedding"] = F.pad(places[0], (0, 0, 1, 0))
    for name, dimensions in (("class_embedding", 1), ("positional_embedding", 2)):
        if (token := flat.get(f"visual.{name}")) is not None and token.ndim == 3:
            flat[f"visual.{name}"] = token.flatten(0, 3 - dimensions)
    if (
        (weight := flat.get("visual.conv1.weight")) is not None
        and weight.ndim == 2
        and weight.shape[1] % 3 == 0
    ):
        side = round((weight.shape[1] / 3) ** 0.5)  # SigLIP 2's: pixels of a patch row by row, colours last
        flat["visual.conv1.weight"] = weight.view(-1, side, side, 3).permute(0, 3, 1, 2)
    for name in ("logit_scale", "logit_bias"):
        if name in flat and flat[name].numel() == 1:
            flat[name] = flat[name].reshape(())
    return flat


def _join_projections(state: State) -> State:
    """Separate query, key and value weights → one matrix. EVA's keys have no bias: it is zero."""
    joined = {key: value for key, value in state.items() if not re.search(r"\.attn\.(q|k|v|kv)_proj\.", key)}
    for key in state:
        if not key.endswith(".attn.q_proj.weight"):
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
