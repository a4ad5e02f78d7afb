"""Find a model by a name, a file, a directory or a hub repository. What the files leave open is asked for."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from taps.disk import add_copy, new_folder
from taps.errors import WeightsError
from taps.files import write_json, write_tensors
from taps.model.clip import hub
from taps.model.clip.config import ClipConfig, architectures, builtin_config, read_config, read_object
from taps.model.clip.formats import hf_config, open_clip_config, openai_config
from taps.model.clip.hub import HF_FILES, OPEN_CLIP_FILES, TOKENIZER_FILES, fetch, fetch_first
from taps.model.clip.keys import OPENAI_NUMBERS, State, to_openai_keys
from taps.model.clip.weights import check_fit, misfits, read_file, shard_names
from taps.model.embedded import embedded

log = logging.getLogger("taps")
RANDOM = "random"
WEIGHT_SUFFIXES = (".pt", ".pth", ".bin", ".safetensors")
WEIGHT_FILES = ("model.safetensors", *OPEN_CLIP_FILES, *HF_FILES[1:])
OWN_CONFIG, PIXELS = "taps_config.json", "preprocessor_config.json"
OPEN_CLIP_CONFIG = "open_clip_config.json"
ACTIVATION_SUFFIXES = {"-quickgelu": "quick_gelu", "-gelu": "gelu"}  # of an architecture's name


@dataclass(frozen=True)
class ModelFiles:
    """A model's configuration, its weights (None: random ones) and the file of its own tokenizer, if any."""

    config: ClipConfig
    weights: Path | None
    tokenizer: Path | None = None


def plain_name(name: str) -> str:
    """An architecture's name without the suffix that names the activation."""
    suffix = next((suffix for suffix in ACTIVATION_SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


def find(name: str, pretrained: str | None) -> ModelFiles:
    """The files of a model; weights are downloaded if needed, but not read yet."""
    if name == "pocket":
        return ModelFiles(read_config(embedded("pocket.json")), embedded("pocket.safetensors"))
    path = Path(name).expanduser()
    if plain_name(name) not in architectures():  # a name wins over a folder of that name
        if path.is_dir():
            return find_directory(path)
        if path.is_file():
            return _find_bare_file(path)
        if path.suffix in WEIGHT_SUFFIXES or name.startswith((".", "/", "~")):
            raise WeightsError(f"No file or directory {name} found; check the path of the model.")
        if name.count("/") == 1:
            return find_repository(name)
    return _find_architecture(name, pretrained)


def _find_architecture(name: str, pretrained: str | None) -> ModelFiles:
    plain = plain_name(name)
    activation = ACTIVATION_SUFFIXES.get(name.removeprefix(plain))
    tag = None if pretrained == RANDOM else pretrained
    if plain == "tiny" and tag is None:
        config = builtin_config(plain)
        return ModelFiles(replace(config, activation=activation or config.activation), None)
    if tag is not None and (path := Path(tag).expanduser()).is_file():
        return _find_named_file(path, plain, activation)
    wanted = hub.published(plain, tag)
    if activation not in (None, wanted.config.activation):
        raise WeightsError(
            f"The weights {tag or 'of ' + plain} were trained with {wanted.config.activation}, not "
            f"{activation}; load {plain}."
        )
    if pretrained == RANDOM:
        return ModelFiles(wanted.config, None)
    try:
        return ModelFiles(wanted.config, *wanted.fetch())
    except WeightsError as error:
        raise WeightsError(
            f"{error} {plain} needs {'; '.join(wanted.needed)}; `taps models show {plain}"
            f"{f' --pretrained {tag}' if tag else ''}` gives the steps."
        ) from error


def find_repository(name: str) -> ModelFiles:
    """A hub repository in Hugging Face's or open_clip's layout."""
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
    for file in TOKENIZER_FILES:
        with contextlib.suppress(WeightsError):  # `_tokenizer_beside` refuses a model that needs them
            fetch(name, file)
    return find_directory(config.parent, name=name)


def _is_hugging_face(folder: Path) -> bool:
    """Whether config.json is transformers'; timm's files have the same name."""
    config = folder / "config.json"
    return config.is_file() and "architecture" not in read_object(config)


def _fetch_hugging_face(name: str) -> bool:
    """Download weights and preprocessing in Hugging Face's layout; False where there are no weights."""
    try:
        weights = fetch_first(name, HF_FILES)
    except hub.AbsentError:
        return False
    if weights.name.endswith(".index.json"):
        for shard in shard_names(weights):
            fetch(name, shard)
    # Older repositories have no such file; CLIP's own pixel statistics then hold.
    with contextlib.suppress(hub.AbsentError):
        fetch(name, PIXELS)
    return True


def find_directory(folder: Path, *, name: str | None = None) -> ModelFiles:
    """A directory in the layout of Hugging Face, open_clip or `taps models import`."""
    hugging_face = _is_hugging_face(folder)
    files = WEIGHT_FILES if hugging_face else (*OPEN_CLIP_FILES, *WEIGHT_FILES)
    weights = next((folder / file for file in files if (folder / file).is_file()), None)
    if weights is None:
        raise WeightsError(f"{folder} holds none of {', '.join(WEIGHT_FILES)}; put the weights there.")
    name = name or folder.resolve().name
    if (folder / OWN_CONFIG).is_file():
        config = read_config(folder / OWN_CONFIG)
    elif (folder / OPEN_CLIP_CONFIG).is_file() and not (weights.name in HF_FILES and hugging_face):
        config = open_clip_config(read_object(folder / OPEN_CLIP_CONFIG), name=name)
    elif (folder / "config.json").is_file():
        pixels = read_object(folder / PIXELS) if (folder / PIXELS).is_file() else {}
        if not pixels:
            log.warning("%s has no %s: the usual mean and size of its kind are taken.", name, PIXELS)
        config = hf_config(read_object(folder / "config.json"), pixels, name=name)
    else:
        return _find_bare_file(weights)
    return ModelFiles(config, weights, _tokenizer_beside(config, folder))


def _tokenizer_beside(config: ClipConfig, folder: Path) -> Path | None:
    if config.tokenizer == "clip":
        return None
    if not (folder / "tokenizer.json").is_file():
        raise WeightsError(
            f"{config.name} has a vocabulary of its own: put its {' and '.join(TOKENIZER_FILES)} into "
            f"{folder}."
        )
    return folder / "tokenizer.json"


def _find_named_file(path: Path, name: str, activation: str | None) -> ModelFiles:
    """One file of weights of a known architecture."""
    config = builtin_config(name)
    if activation is None and hub.activations_differ(name):
        if not _is_openai(read_file(path)):
            raise WeightsError(
                f"{path} does not say its activation; name the model {name}-quickgelu for weights of OpenAI, "
                f"MetaCLIP or DFN, {name}-gelu for others, such as LAION's and DataComp's."
            )
        activation = "quick_gelu"
    config = replace(config, activation=activation or config.activation)
    return ModelFiles(config, path, _tokenizer_beside(config, path.parent))


def _find_bare_file(path: Path) -> ModelFiles:
    """One file of weights: OpenAI's own say what they are, others need an architecture."""
    raw = read_file(path)
    state = to_openai_keys(raw)
    if not _is_openai(raw):
        raise WeightsError(_which_architecture(path, state))
    return ModelFiles(openai_config(state, name=path.stem), path)


def _is_openai(raw: State) -> bool:
    return any(key in raw for key in OPENAI_NUMBERS)


def _which_architecture(path: Path, state: State) -> str:
    """The error that asks for an architecture, with those that fit the shapes."""
    words = state.get("token_embedding.weight")
    known = [builtin_config(name) for name in architectures()]
    likely = [] if words is None else [each for each in known if words.shape[-1] == each.text_width]
    fitting = [config.name for config in likely if not misfits(config, state)]
    if not fitting:
        return (
            f"{path} does not say what model it is of; put it into a directory with its config.json or "
            "open_clip_config.json and load that."
        )
    forms = []
    for name in fitting:
        suffixes = ACTIVATION_SUFFIXES if hub.activations_differ(name) else ("",)
        forms += [f"{name}{suffix}" for suffix in suffixes]
    return (
        f"{path} does not say its activation, image size and number of heads; give its architecture as the "
        f"model and the file as pretrained: {', '.join(forms)} would fit (-quickgelu: OpenAI, MetaCLIP, DFN)."
    )


def write_directory(files: ModelFiles, out: Path) -> None:
    """Write a model as one directory that `load_clip` takes: weights, configuration, tokenizer."""
    assert files.weights is not None
    state = to_openai_keys(read_file(files.weights))
    check_fit(files.config, state, source=str(files.weights))
    with new_folder(out) as part:
        write_tensors(part / "model.safetensors", state)
        if files.tokenizer is not None:
            for file in TOKENIZER_FILES:
                add_copy(part / file, files.tokenizer.with_name(file).read_bytes())
        write_json(part / OWN_CONFIG, files.config.to_dict())
