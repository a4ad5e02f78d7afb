"""Configurations of other programs: open_clip's, Hugging Face's and the shapes of OpenAI's archives.

A setting that changes the model and is not known here is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.errors import WeightsError
from taps.model.clip.config import ClipConfig, architectures, as_tuples
from taps.model.clip.keys import State

Values = dict[str, Any]
HALF = (0.5, 0.5, 0.5)
OPENAI_HEAD = 64  # width of every head of OpenAI's own models

# Settings without effect on a trained model.
TRAINING = {
    "patch_dropout", "output_tokens", "timm_drop", "timm_drop_path", "timm_model_pretrained", "pad_id",
    "eos_id", "hf_model_pretrained", "init_logit_scale",
}  # fmt: skip
OPEN_CLIP_MODEL = {"embed_dim", "quick_gelu", "vision_cfg", "text_cfg", "custom_text", "init_logit_bias"}
OPEN_CLIP_VISION = {
    "image_size", "layers", "width", "head_width", "mlp_ratio", "patch_size", "no_ln_pre", "pool_type",
    "final_ln_after_pool", "timm_model_name", "timm_pool", "timm_proj", "norm_kwargs", "act_kwargs",
}  # fmt: skip
OPEN_CLIP_TEXT = {
    "context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio", "no_causal_mask", "pool_type",
    "proj_bias", "proj_type", "norm_kwargs", "act_kwargs", "hf_tokenizer_name", "tokenizer_kwargs",
}  # fmt: skip
POOLS = {"argmax": "end", "eos": "end", "last": "last"}
CLEANING = {"canonicalize": "canonical", "lower": "lower", "whitespace": "whitespace"}


def open_clip_config(values: Values, *, name: str) -> ClipConfig:
    """An open_clip_config.json → our configuration."""
    model = values.get("model_cfg", {})
    vision, text = model.get("vision_cfg"), model.get("text_cfg")
    if not isinstance(vision, dict) or not isinstance(text, dict):
        raise WeightsError(
            f"The open_clip_config.json of {name} does not describe both towers; fetch it again."
        )
    _refuse_unknown(model, OPEN_CLIP_MODEL, name)
    _refuse_unknown(vision, OPEN_CLIP_VISION, name)
    _refuse_unknown(text, OPEN_CLIP_TEXT, name)
    if model.get("embed_dim") is None:
        raise WeightsError(f"The configuration of {name} does not say embed_dim; fetch the file again.")
    made = {
        **(_timm_tower(vision, name) if "timm_model_name" in vision else _open_clip_vision(vision)),
        **_open_clip_text(text, name),
        **_open_clip_pixels(values.get("preprocess_cfg", {})),
        "embed_dim": model["embed_dim"],
        "logit_bias": "init_logit_bias" in model,
    }
    if model.get("quick_gelu"):
        made["activation"] = "quick_gelu"
    return ClipConfig(name=name, **made)


def _refuse_unknown(given: Mapping[str, Any], known: set[str], name: str) -> None:
    """Refuse unknown settings that are switched on."""
    odd = sorted(key for key in given.keys() - known - TRAINING if given[key] not in (None, False, 0, ""))
    if odd:
        settings = ", ".join(f"{key}={given[key]!r}" for key in odd)
        raise WeightsError(f"{name} is a model with {settings}, which cannot be loaded.")


def _open_clip_vision(vision: Values) -> Values:
    width = vision.get("width", 768)
    if isinstance(stages := vision.get("layers"), list):
        return resnet_sizes(width, stages, vision.get("image_size", 224))
    mean = vision.get("pool_type", "tok") == "avg" and vision.get("final_ln_after_pool", False)
    if not mean and (vision.get("pool_type", "tok") != "tok" or vision.get("final_ln_after_pool")):
        raise WeightsError(f"The image tower pools by {vision.get('pool_type')!r}, which cannot be loaded.")
    return {
        "image_size": vision.get("image_size", 224),
        "patch_size": vision.get("patch_size", 16),
        "vision_width": width,
        "vision_layers": vision.get("layers", 12),
        "vision_heads": width // vision.get("head_width", 64),
        "vision_mlp": int(width * vision.get("mlp_ratio", 4.0)),
        "vision_eps": (vision.get("norm_kwargs") or {}).get("eps", 1e-5),
        "ln_pre": not vision.get("no_ln_pre", False),
        "vision_pool": "mean" if mean else "class",
    }


def resnet_sizes(width: int, stages: list[int], image_size: int) -> Values:
    """An image tower that is one of OpenAI's ResNets."""
    return {
        "image_size": image_size,
        "patch_size": 32,
        "vision_width": width,
        "vision_layers": 0,
        "vision_heads": width * 32 // 64,
        "vision_tower": "resnet",
        "stages": tuple(stages),
    }


def _timm_tower(vision: Values, name: str) -> Values:
    """The fields of an image tower of timm's, which is known by its name."""
    timm = vision["timm_model_name"]
    found = next((each for each in architectures().values() if each.get("timm") == timm), None)
    if found is None:
        raise WeightsError(f"The image tower of {name} is timm's {timm}, which cannot be loaded.")
    own = (
        "vision_", "patch_", "pool_", "stages", "class_token", "ln_pre", "rotary", "gated", "activation",
    )  # fmt: skip
    tower = as_tuples({key: value for key, value in found.items() if key.startswith(own)})
    if tower.get("vision_tower") == "convnext":
        tower["vision_projection_hidden"] = vision.get("timm_proj") == "mlp"
    return {**tower, "image_size": vision.get("image_size", found["image_size"])}


def _open_clip_text(text: Values, name: str) -> Values:
    width, pool = text.get("width", 512), text.get("pool_type", "argmax")
    if pool not in POOLS:
        raise WeightsError(f"The text tower of {name} pools by {pool!r}, which cannot be loaded.")
    words = text.get("tokenizer_kwargs") or {}
    made = {
        "text_width": width,
        "text_layers": text.get("layers", 12),
        "text_heads": text.get("heads", 8),
        "text_mlp": int(width * text.get("mlp_ratio", 4.0)),
        "text_eps": (text.get("norm_kwargs") or {}).get("eps", 1e-5),
        "context_length": text.get("context_length", 77),
        "vocab_size": text.get("vocab_size", 49408),
        "causal": not text.get("no_causal_mask", False),
        "text_pool": POOLS[pool],
        "text_projection": text.get("proj_type", "linear") != "none",
        "text_projection_bias": text.get("proj_bias", False),
        "tokenizer": "file" if text.get("hf_tokenizer_name") else "clip",
        "end_marker": not words.get("strip_sep_token", False),
    }
    if made["tokenizer"] == "file":
        made["clean"] = CLEANING.get(words.get("clean", "whitespace"), words.get("clean"))
    return made


def _open_clip_pixels(pixels: Values) -> Values:
    made: Values = {key: tuple(pixels[key]) for key in ("mean", "std") if key in pixels}
    for key, ours in (("resize_mode", "resize"), ("interpolation", "interpolation")):
        if pixels.get(key):
            made[ours] = pixels[key]
    return made


def hf_config(values: Values, pixels: Values, *, name: str) -> ClipConfig:
    """A Hugging Face config.json and preprocessor_config.json → our configuration."""
    kind = values.get("model_type")
    if kind not in ("clip", "metaclip_2", "siglip", "siglip2"):
        raise WeightsError(
            f"{name} is a {kind!r} model; only 'clip', 'metaclip_2', 'siglip' and 'siglip2' can be loaded."
        )
    vision, text = values.get("vision_config", {}), values.get("text_config", {})
    siglip = kind.startswith("siglip")
    # Files leave out the library's defaults.
    text_width = text.get("hidden_size", 768 if siglip else 512)
    default = "gelu_pytorch_tanh" if siglip else "quick_gelu"
    activations = {tower.get("hidden_act") or default for tower in (vision, text)}
    if len(activations) > 1:
        raise WeightsError(
            f"The towers of {name} have different activations, {', '.join(sorted(activations))}."
        )
    activation = activations.pop()
    image_size, patch_size = vision.get("image_size", 224), vision.get("patch_size", 16 if siglip else 32)
    if kind == "siglip2":  # any shape of so many patches; here the square one
        image_size = round(vision.get("num_patches", 256) ** 0.5) * patch_size
    made = {
        "image_size": image_size,
        "patch_size": patch_size,
        "vision_width": vision.get("hidden_size", 768),
        "vision_layers": vision.get("num_hidden_layers", 12),
        "vision_heads": vision.get("num_attention_heads", 12),
        "vision_mlp": vision.get("intermediate_size", 3072),
        "vision_eps": vision.get("layer_norm_eps", 1e-6 if siglip else 1e-5),
        "text_width": text_width,
        "text_layers": text.get("num_hidden_layers", 12),
        "text_heads": text.get("num_attention_heads", 12 if siglip else 8),
        "text_mlp": text.get("intermediate_size", 3072 if siglip else 2048),
        "text_eps": text.get("layer_norm_eps", 1e-6 if siglip else 1e-5),
        "context_length": text.get("max_position_embeddings", 64 if siglip else 77),
        "vocab_size": text.get("vocab_size", 32000 if siglip else 49408),
        "activation": "gelu_tanh" if activation == "gelu_pytorch_tanh" else activation,
        "embed_dim": text.get("projection_size", text_width) if siglip else values.get("projection_dim", 512),
        **_hf_pixels(pixels, siglip),
    }
    if siglip:
        made |= {"patch_bias": True, "class_token": False, "ln_pre": False, "vision_pool": "map"}
        made |= {"vision_projection": False, "causal": False, "text_pool": "last", "logit_bias": True}
        made |= {"text_projection_bias": True, "tokenizer": "file", "clean": "canonical"}
    elif kind == "metaclip_2":
        made |= {"tokenizer": "file", "clean": "whitespace"}
    return ClipConfig(name=name, **made)


def _hf_pixels(pixels: Values, siglip: bool) -> Values:
    """The fields that a preprocessor_config.json sets, on top of its class's defaults."""
    made: Values = {"mean": HALF, "std": HALF, "resize": "squash"} if siglip else {}
    made |= {key: tuple(pixels[f"image_{key}"]) for key in ("mean", "std") if f"image_{key}" in pixels}
    if isinstance(size := pixels.get("size"), dict):
        square = "height" in size and not pixels.get("do_center_crop")
        made["resize"] = "squash" if square else "shortest"
    if "resample" in pixels:
        filters = {2: "bilinear", 3: "bicubic"}
        made["interpolation"] = filters.get(pixels["resample"], str(pixels["resample"]))
    return made


def openai_config(state: State, *, name: str) -> ClipConfig:
    """The configuration of one of OpenAI's archives, read off the shapes of its weights."""
    try:
        text = state["text_projection"]
        sizes = {
            "embed_dim": text.shape[1],
            "text_width": text.shape[0],
            "text_heads": text.shape[0] // OPENAI_HEAD,
            "text_layers": _depth(state, "transformer.resblocks."),
            "context_length": state["positional_embedding"].shape[0],
            "vocab_size": state["token_embedding.weight"].shape[0],
            "activation": "quick_gelu",
            **_openai_vision(state),
        }
    except KeyError as error:
        raise WeightsError(
            f"{name} does not hold a CLIP with a vision transformer: {error} is missing."
        ) from None
    except IndexError:
        raise WeightsError(f"{name} does not hold a CLIP: a tensor has too few dimensions.") from None
    return ClipConfig(name=name, **sizes)


def _openai_vision(state: State) -> Values:
    side = round((state["visual.positional_embedding"].shape[0] - 1) ** 0.5)
    if "visual.layer1.0.conv1.weight" in state:
        stages = [_depth(state, f"visual.layer{stage}.") for stage in range(1, 5)]
        return resnet_sizes(state["visual.layer1.0.conv1.weight"].shape[0], stages, 32 * side)
    conv = state["visual.conv1.weight"]
    return {
        "image_size": side * conv.shape[2],
        "patch_size": conv.shape[2],
        "vision_width": conv.shape[0],
        "vision_heads": conv.shape[0] // OPENAI_HEAD,
        "vision_layers": _depth(state, "visual.transformer.resblocks."),
    }


def _depth(state: State, prefix: str) -> int:
    numbers = [key.removeprefix(prefix).split(".")[0] for key in state if key.startswith(prefix)]
    return 1 + max((int(number) for number in numbers if number.isdecimal()), default=-1)
