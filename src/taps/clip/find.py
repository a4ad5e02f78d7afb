"""Which model is meant by a name, a file, a directory or a repository. What is not said is asked for."""

from __future__ import annotations

import contextlib
import logging
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from taps.clip import hub
from taps.clip.config import (
    ClipConfig,
    builtin_config,
    builtin_names,
    named_config,
    no_model,
    read_config,
    read_object,
)
from taps.clip.formats import hf_config, open_clip_config, resnet_sizes
from taps.clip.hub import HF_FILES, OPEN_CLIP_FILES, TOKENIZER_FILES, AbsentError, fetch, fetch_first
from taps.clip.keys import OPENAI_NUMBERS, State, to_openai_keys
from taps.clip.weights import check_fit, misfits, read_file
from taps.embedded import embedded
from taps.errors import WeightsError
from taps.files import write_json, write_tensors

log = logging.getLogger("taps")
RANDOM = "random"
WEIGHT_SUFFIXES = (".pt", ".pth", ".bin", ".safetensors")
WEIGHT_FILES = ("model.safetensors", *OPEN_CLIP_FILES, *HF_FILES[1:])
OWN_CONFIG, PIXELS = "taps_config.json", "preprocessor_config.json"
OPEN_CLIP_CONFIG = "open_clip_config.json"
SAID = {"-quickgelu": "quick_gelu", "-gelu": "gelu"}
"""Ends of an architecture's name that say the activation."""
OPENAI_HEAD = 64
"""Every head of OpenAI's own models is this wide."""


@dataclass(frozen=True)
class Found:
    """A model that can be loaded: what it is, its weights (None for random ones), its tokenizer's file."""

    config: ClipConfig
    weights: Path | None
    words: Path | None = None


def plain_name(name: str) -> str:
    """An architecture's name without what it says of the activation."""
    end = next((end for end in SAID if name.endswith(end)), "")
    return name.removesuffix(end)


def find(name: str, pretrained: str | None) -> Found:
    """Which model is meant; weights are fetched, but not read yet."""
    if name == "pocket":
        return _find_pocket()
    if plain_name(name) in builtin_names():  # also where a folder has the same name
        return _find_architecture(name, pretrained)
    path = Path(name).expanduser()
    if path.is_dir():
        return find_directory(path)
    if path.is_file():
        return find_file(path)
    if path.suffix in WEIGHT_SUFFIXES or name.startswith((".", "/", "~")):
        raise WeightsError(f"No file or directory {name} found; check the path of the model.")
    if name.count("/") == 1:
        return find_repository(name)
    raise no_model(name)


def _find_pocket() -> Found:
    return Found(read_config(embedded("pocket.json")), embedded("pocket.safetensors"))


def _find_architecture(name: str, pretrained: str | None) -> Found:
    plain = plain_name(name)
    told = SAID.get(name.removeprefix(plain))
    tag = None if pretrained == RANDOM else pretrained
    if plain == "tiny" and tag is None:
        config = builtin_config(plain)
        return Found(replace(config, activation=told or config.activation), None)
    if tag is not None and (path := Path(tag).expanduser()).is_file():
        return find_file(path, architecture=name)
    wanted = hub.published(plain, tag)
    if told not in (None, wanted.config.activation):
        raise WeightsError(
            f"The weights {tag or 'of ' + plain} were trained with {wanted.config.activation}, not {told}; "
            f"load {plain}."
        )
    if pretrained == RANDOM:
        return Found(wanted.config, None)
    try:
        words = hub.fetch_tokenizer(wanted.words) if wanted.words else None
        return Found(wanted.config, hub.fetch_weights(wanted), words)
    except WeightsError as error:
        raise WeightsError(
            f"{error} {plain} needs {'; '.join(wanted.needed)}; `taps models show {plain}"
            f"{f' --pretrained {tag}' if tag else ''}` gives the steps."
        ) from error


def find_repository(name: str) -> Found:
    """A repository of the hub that is laid out as Hugging Face's or as open_clip's."""
    try:
        config = fetch_first(name, ("config.json", OPEN_CLIP_CONFIG))
        if not _is_hugging_face(config.parent) or not _fetch_hugging_face(name):
            config = fetch(name, OPEN_CLIP_CONFIG)
            fetch_first(name, OPEN_CLIP_FILES)
    except WeightsError as error:
        raise WeightsError(
            f"{error} A repository needs config.json, {PIXELS} and one of {', '.join(HF_FILES)}; or "
            f"{OPEN_CLIP_CONFIG} and one of {', '.join(OPEN_CLIP_FILES)}; with a vocabulary of its own also "
            f"{' and '.join(TOKENIZER_FILES)}."
        ) from error
    for words in TOKENIZER_FILES:
        with contextlib.suppress(WeightsError):  # a model that needs them says so
            fetch(name, words)
    return find_directory(config.parent, name=name)


def _is_hugging_face(path: Path) -> bool:
    """Whether a config.json describes a model of transformers; timm has files of that name, too."""
    config = path / "config.json"
    return config.is_file() and "architecture" not in read_object(config)


def _fetch_hugging_face(name: str) -> bool:
    """Fetch weights in Hugging Face's layout and how pixels are prepared; False where there are none."""
    try:
        weights = fetch_first(name, HF_FILES)
    except AbsentError:
        return False
    if weights.name.endswith(".index.json"):
        for shard in sorted(set(read_object(weights).get("weight_map", {}).values())):
            fetch(name, shard)
    # Older repositories have no such file; CLIP's own pixel statistics then hold.
    with contextlib.suppress(AbsentError):
        fetch(name, PIXELS)
    return True


def find_directory(path: Path, *, name: str | None = None) -> Found:
    """A directory as Hugging Face, open_clip or `taps models import` lays it out."""
    hugging_face = _is_hugging_face(path)
    files = WEIGHT_FILES if hugging_face else (*OPEN_CLIP_FILES, *WEIGHT_FILES)
    weights = next((path / file for file in files if (path / file).is_file()), None)
    if weights is None:
        raise WeightsError(f"{path} holds none of {', '.join(WEIGHT_FILES)}; put the weights there.")
    name = name or path.resolve().name
    if (path / OWN_CONFIG).is_file():
        config = read_config(path / OWN_CONFIG)
    elif (path / OPEN_CLIP_CONFIG).is_file() and not (weights.name in HF_FILES and hugging_face):
        config = open_clip_config(read_object(path / OPEN_CLIP_CONFIG), name=name)
    elif (path / "config.json").is_file():
        pixels = read_object(path / PIXELS) if (path / PIXELS).is_file() else {}
        if not pixels:
            log.warning("%s has no %s: the usual mean and size of its kind are taken.", name, PIXELS)
        config = hf_config(read_object(path / "config.json"), pixels, name=name)
    else:
        return find_file(weights)
    return Found(config, weights, _words_beside(config, path))


def _words_beside(config: ClipConfig, folder: Path) -> Path | None:
    if config.tokenizer == "clip":
        return None
    if not (folder / "tokenizer.json").is_file():
        raise WeightsError(
            f"{config.name} has a vocabulary of its own: put its {' and '.join(TOKENIZER_FILES)} into "
            f"{folder}."
        )
    return folder / "tokenizer.json"


def find_file(path: Path, *, architecture: str | None = None) -> Found:
    """One file of weights: OpenAI's own say what they are, of others the architecture must be named."""
    if architecture is not None:
        plain = plain_name(architecture)
        config = builtin_config(plain)
        told = SAID.get(architecture.removeprefix(plain))
        if told is None and hub.activations_differ(plain):
            told = "quick_gelu" if is_openai(read_file(path)) else _ask_activation(path, plain)
        config = replace(config, activation=told or config.activation)
        return Found(config, path, _words_beside(config, path.parent))
    raw = read_file(path)
    if not is_openai(raw):
        raise WeightsError(_which_architecture(path, to_openai_keys(raw)))
    return Found(openai_config(to_openai_keys(raw), name=path.stem), path)


def write_directory(found: Found, out: Path) -> None:
    """A model as one directory that leaves no question open: weights, configuration, tokenizer."""
    assert found.weights is not None
    state = to_openai_keys(read_file(found.weights))
    check_fit(found.config, state, source=str(found.weights))
    out.mkdir(parents=True)
    write_tensors(out / "model.safetensors", state)
    if found.words is not None:
        for file in TOKENIZER_FILES:
            shutil.copyfile(found.words.with_name(file), out / file)
    write_json(out / OWN_CONFIG, found.config.to_dict())


def is_openai(raw: State) -> bool:
    return any(key in raw for key in OPENAI_NUMBERS)


def _ask_activation(path: Path, name: str) -> str:
    raise WeightsError(
        f"{path} does not say its activation; name the model {name}-quickgelu for weights of OpenAI, "
        f"MetaCLIP or DFN, {name}-gelu for others, such as LAION's and DataComp's."
    )


def _which_architecture(path: Path, state: State) -> str:
    """The sentence that asks for an architecture, with those that the shapes would fit."""
    words = state.get("token_embedding.weight")
    known = [builtin_config(name) for name in builtin_names()]
    likely = [] if words is None else [each for each in known if words.shape[-1] == each.text_width]
    fitting = [config.name for config in likely if not misfits(config, state)]
    if not fitting:
        return (
            f"{path} does not say what model it is of; put it into a directory with its config.json or "
            "open_clip_config.json and load that."
        )
    forms = [f"{name}{end}" for name in fitting for end in (SAID if hub.activations_differ(name) else ("",))]
    return (
        f"{path} does not say its activation, image size and number of heads; give its architecture as the "
        f"model and the file as pretrained: {', '.join(forms)} would fit (-quickgelu: OpenAI, MetaCLIP, DFN)."
    )


def openai_sizes(state: State) -> dict[str, Any]:
    """Sizes that can be read off the shapes of weights in OpenAI's layout."""
    conv, text = state["visual.conv1.weight"], state["text_projection"]
    words = {
        "embed_dim": text.shape[1],
        "text_width": text.shape[0],
        "text_layers": _depth(state, "transformer.resblocks."),
    }
    if "visual.layer1.0.conv1.weight" in state:
        stages = [_depth(state, f"visual.layer{stage}.") for stage in range(1, 5)]
        side = round((state["visual.positional_embedding"].shape[0] - 1) ** 0.5)
        width = state["visual.layer1.0.conv1.weight"].shape[0]
        return {**words, **resnet_sizes(width, stages, 32 * side)}
    side = round((state["visual.positional_embedding"].shape[0] - 1) ** 0.5)
    return {
        **words,
        "image_size": side * conv.shape[2],
        "patch_size": conv.shape[2],
        "vision_width": conv.shape[0],
        "vision_layers": _depth(state, "visual.transformer.resblocks."),
    }


def openai_config(state: State, *, name: str) -> ClipConfig:
    """What one of OpenAI's own archives holds."""
    try:
        sizes = openai_sizes(state)
        heads = {f"{tower}_heads": sizes[f"{tower}_width"] // OPENAI_HEAD for tower in ("vision", "text")}
        heads |= {key: value for key, value in sizes.items() if key == "vision_heads"}
        words = {
            "context_length": state["positional_embedding"].shape[0],
            "vocab_size": state["token_embedding.weight"].shape[0],
        }
        return named_config(name, {**sizes, **heads, **words, "activation": "quick_gelu"})
    except KeyError as error:
        raise WeightsError(
            f"{name} does not hold a CLIP with a vision transformer: {error} is missing."
        ) from None
    except IndexError:
        raise WeightsError(f"{name} does not hold a CLIP: a tensor has too few dimensions.") from None


def _depth(state: State, prefix: str) -> int:
    numbers = [key.removeprefix(prefix).split(".")[0] for key in state if key.startswith(prefix)]
    return 1 + max((int(number) for number in numbers if number.isdecimal()), default=-1)
