"""Weights of a CLIP from the layouts found in the wild: OpenAI, open_clip, Hugging Face, the embedded model.

Each layout is turned into OpenAI's key names; then every key must find its place and every place its key.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from taps.clip.config import ClipConfig
from taps.clip.model import Clip
from taps.clip.pickled import read_pickled
from taps.errors import WeightsError

State = dict[str, Tensor]

# OpenAI's archives carry these numbers beside the weights; they only repeat the architecture.
OPENAI_NUMBERS = ("input_resolution", "context_length", "vocab_size")
HEAD_WIDTH = 64
HF_RENAMES = [
    (r"^text_model\.embeddings\.token_embedding\.", "token_embedding."),
    (r"^text_model\.embeddings\.position_embedding\.weight$", "positional_embedding"),
    (r"^text_model\.final_layer_norm\.", "ln_final."),
    (r"^text_model\.encoder\.layers\.", "transformer.resblocks."),
    (r"^text_projection\.weight$", "text_projection"),
    (r"^vision_model\.embeddings\.class_embedding$", "visual.class_embedding"),
    (r"^vision_model\.embeddings\.patch_embedding\.", "visual.conv1."),
    (r"^vision_model\.embeddings\.position_embedding\.weight$", "visual.positional_embedding"),
    (r"^vision_model\.pre_layrnorm\.", "visual.ln_pre."),
    (r"^vision_model\.post_layernorm\.", "visual.ln_post."),
    (r"^vision_model\.encoder\.layers\.", "visual.transformer.resblocks."),
    (r"^visual_projection\.weight$", "visual.proj"),
    (r"\.layer_norm([12])\.", r".ln_\1."),
    (r"\.mlp\.fc1\.", ".mlp.c_fc."),
    (r"\.mlp\.fc2\.", ".mlp.c_proj."),
    (r"\.self_attn\.", ".attn."),
]


def read_file(path: Path) -> State:
    """The tensors of a safetensors file, a state dict, or one of OpenAI's TorchScript archives."""
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except Exception as error:
            raise WeightsError(
                f"{path} is not a readable safetensors file ({error}); fetch it again."
            ) from error
    if _is_torchscript(path):
        return _read_torchscript(path)
    try:
        loaded = read_pickled(path)
    except Exception as error:
        raise WeightsError(
            f"{path} cannot be read as plain weights ({first_line(error)}); only files of tensors "
            "are loaded, never pickled code."
        ) from error
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in loaded.items()
    ):
        raise WeightsError(f"{path} does not hold a state dict of tensors.")
    return {key.removeprefix("module."): value for key, value in loaded.items()}


def first_line(error: Exception) -> str:
    """What an error says, in short: torch explains itself over many lines, or not at all."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _read_torchscript(path: Path) -> State:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated, but it is what OpenAI published
            archive = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
            return dict(archive.state_dict())
    except Exception as error:
        raise WeightsError(f"{path} is not a readable TorchScript archive; fetch it again.") from error


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("constants.pkl") for name in archive.namelist())


def to_openai_keys(state: State) -> State:
    """Any known layout → OpenAI's key names."""
    state = dequantise(state)
    if any(key.startswith("vision_model.") for key in state):
        return _from_hf(state)
    return {key: value for key, value in state.items() if key not in OPENAI_NUMBERS}


def dequantise(state: State) -> State:
    """int8 rows with a scale each (`name` and `name.scale`) → float32."""
    scales = {key for key in state if key.endswith(".scale") and key.removesuffix(".scale") in state}
    plain = {key: value for key, value in state.items() if key not in scales}
    for key in scales:
        name = key.removesuffix(".scale")
        rows = state[key].float().reshape(-1, *[1] * (plain[name].ndim - 1))
        plain[name] = plain[name].float() * rows
    return plain


def _from_hf(state: State) -> State:
    renamed: State = {}
    for key, value in state.items():
        if key.endswith(".position_ids"):  # an index 0..n that old checkpoints stored
            continue
        for pattern, new in HF_RENAMES:
            key = re.sub(pattern, new, key)
        renamed[key] = value
    for name in ("visual.proj", "text_projection"):
        if name in renamed:
            renamed[name] = renamed[name].T
    return _join_projections(renamed)


def _join_projections(state: State) -> State:
    """Hugging Face's separate query, key and value weights → one matrix."""
    joined = {key: value for key, value in state.items() if not re.search(r"\.attn\.[qkv]_proj\.", key)}
    for key in state:
        if ".attn.q_proj." in key:
            parts = [key.replace("q_proj", f"{letter}_proj") for letter in "qkv"]
            missing = [part for part in parts if part not in state]
            if missing:
                raise WeightsError(f"The weights lack {', '.join(missing)}.")
            target = key.replace(".q_proj.", ".in_proj_")
            joined[target] = torch.cat([state[part] for part in parts])
    return joined


def infer_config(state: State, *, name: str, activation: str, template: ClipConfig) -> ClipConfig:
    """Sizes from the shapes of weights in OpenAI's key names; heads are 64 wide, as in published CLIPs."""
    try:
        conv, proj = state["visual.conv1.weight"], state["visual.proj"]
        positions, text = state["visual.positional_embedding"], state["text_projection"]
        width, text_width = conv.shape[0], text.shape[0]
        if width % HEAD_WIDTH or text_width % HEAD_WIDTH:
            raise WeightsError(
                f"{name} has towers {width} and {text_width} wide, so the number of heads cannot be told; "
                "give the architecture's name and the file as pretrained=."
            )
        side = round((positions.shape[0] - 1) ** 0.5)
        return replace(
            template,
            name=name,
            embed_dim=proj.shape[1],
            image_size=side * conv.shape[2],
            patch_size=conv.shape[2],
            vision_width=width,
            vision_layers=_depth(state, "visual.transformer."),
            vision_heads=width // HEAD_WIDTH,
            text_width=text_width,
            text_layers=_depth(state, "transformer."),
            text_heads=text_width // HEAD_WIDTH,
            context_length=state["positional_embedding"].shape[0],
            vocab_size=state["token_embedding.weight"].shape[0],
            activation=activation,
        )
    except KeyError as error:
        raise WeightsError(
            f"{name} does not hold a CLIP with a vision transformer: {error} is missing."
        ) from None
    except IndexError:
        raise WeightsError(f"{name} does not hold a CLIP: a tensor has too few dimensions.") from None


def _depth(state: State, prefix: str) -> int:
    pattern = re.compile(re.escape(prefix) + r"resblocks\.(\d+)\.")
    return 1 + max((int(match[1]) for key in state if (match := pattern.match(key))), default=-1)


def hf_config(values: dict[str, Any], *, name: str, template: ClipConfig) -> ClipConfig:
    """A Hugging Face config.json → our configuration."""
    if values.get("model_type") != "clip":
        raise WeightsError(f"{name} is a {values.get('model_type')!r} model; only 'clip' can be loaded.")
    vision, text = values.get("vision_config", {}), values.get("text_config", {})
    return replace(
        template,
        name=name,
        embed_dim=values.get("projection_dim", 512),
        image_size=vision.get("image_size", 224),
        patch_size=vision.get("patch_size", 32),
        vision_width=vision.get("hidden_size", 768),
        vision_layers=vision.get("num_hidden_layers", 12),
        vision_heads=vision.get("num_attention_heads", 12),
        text_width=text.get("hidden_size", 512),
        text_layers=text.get("num_hidden_layers", 12),
        text_heads=text.get("num_attention_heads", 8),
        context_length=text.get("max_position_embeddings", 77),
        vocab_size=text.get("vocab_size", 49408),
        activation=vision.get("hidden_act", "quick_gelu"),
    )


def build(config: ClipConfig, state: State, *, source: str) -> Clip:
    """A CLIP filled with weights: every key consumed, every parameter filled, every shape equal."""
    clip = Clip(config, fingerprint=fingerprint(state))
    wanted = dict(clip.named_parameters())
    missing, unknown = sorted(wanted.keys() - state.keys()), sorted(state.keys() - wanted.keys())
    wrong = [
        f"{key} is {tuple(state[key].shape)}, not {tuple(wanted[key].shape)}"
        for key in sorted(wanted.keys() & state.keys())
        if state[key].shape != wanted[key].shape
    ]
    if missing or unknown or wrong:
        raise WeightsError(
            f"{source} does not fit {config.name}: "
            + "; ".join(
                f"{what}: {_some(keys)}"
                for what, keys in (
                    ("missing keys", missing),
                    ("unknown keys", unknown),
                    ("wrong shapes", wrong),
                )
                if keys
            )
            + "."
        )
    odd = sorted(f"{key} is {value.dtype}" for key, value in state.items() if not value.is_floating_point())
    if odd:
        raise WeightsError(f"{source} holds numbers that are no weights: {_some(odd)}.")
    # One sum is the quickest way to meet a NaN or an infinity among a hundred million numbers.
    damaged = [key for key, value in state.items() if not math.isfinite(value.sum(dtype=torch.float32))]
    if damaged:
        raise WeightsError(
            f"{source} holds values that are not finite in {_some(sorted(damaged))}; fetch it again."
        )
    for key, parameter in wanted.items():
        parameter.copy_(state[key])
    return clip


def _some(keys: list[str], most: int = 8) -> str:
    return ", ".join(keys[:most]) + (f" and {len(keys) - most} more" if len(keys) > most else "")


def fingerprint(state: State, samples: int = 1024) -> str:
    """A name for weights, the same whether a file keeps them in single or in half precision.

    Hashes some values of every tensor, rounded to half precision: rounding what is rounded changes nothing.
    """
    digest = hashlib.sha256()
    for key in sorted(state):
        flat = state[key].detach().flatten()
        picked = flat[:: max(1, len(flat) // samples)].half()
        digest.update(f"{key}{tuple(state[key].shape)}".encode())
        digest.update(picked.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read as JSON ({error}).") from error
    if not isinstance(values, dict):
        raise WeightsError(f"{path} does not hold a JSON object.")
    return values
