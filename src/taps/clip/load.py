"""`load_clip`: a frozen CLIP from a name, a file, a directory or a hub repository."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path

import torch

from taps.clip.config import ClipConfig, builtin_config, builtin_names, read_config
from taps.clip.model import Clip, initialise
from taps.clip.weights import (
    OPENAI_NUMBERS,
    build,
    hf_config,
    infer_config,
    read_file,
    read_json,
    to_openai_keys,
)
from taps.errors import WeightsError

RANDOM = "random"
WEIGHT_SUFFIXES = (".pt", ".pth", ".bin", ".safetensors")
# (architecture, weights) → hub repository and file.
HUB = {
    ("ViT-B-32", "openai"): ("openai/clip-vit-base-patch32", "model.safetensors"),
    ("ViT-B-16", "openai"): ("openai/clip-vit-base-patch16", "model.safetensors"),
    ("ViT-L-14", "openai"): ("openai/clip-vit-large-patch14", "model.safetensors"),
    ("ViT-B-32", "laion2b"): ("laion/CLIP-ViT-B-32-laion2B-s34B-b79K", "open_clip_model.safetensors"),
    ("ViT-B-16", "laion2b"): ("laion/CLIP-ViT-B-16-laion2B-s34B-b88K", "open_clip_model.safetensors"),
    ("ViT-L-14", "laion2b"): ("laion/CLIP-ViT-L-14-laion2B-s32B-b82K", "open_clip_model.safetensors"),
}
WEIGHT_FILES = (
    "model.safetensors",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "open_clip_pytorch_model.bin",
)


def load_clip(
    name_or_path: str | Path,
    *,
    pretrained: str | Path | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Clip:
    """Load a frozen CLIP.

    Args:
        name_or_path: `pocket` (comes with the package), `tiny` (random, for tests), an architecture
            (`ViT-B-32`, `ViT-B-16`, `ViT-L-14`), a checkpoint file, a directory with a Hugging Face or
            open_clip checkpoint, or a hub repository such as `openai/clip-vit-base-patch16`.
        pretrained: For an architecture: a checkpoint file, `openai` (default), `laion2b`, or `random`.
        device: Where to put it; CUDA when there is one, else the CPU.
        dtype: Precision of the frozen weights; float32 unless said.

    >>> load_clip("tiny").config.embed_dim
    32
    """
    clip = _load(str(name_or_path), None if pretrained is None else str(pretrained))
    clip.source, clip.pretrained = _lasting(name_or_path), _lasting(pretrained)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return clip.to(device=device, dtype=dtype or torch.float32)


def _lasting(given: str | Path | None) -> str | None:
    """A name as it is, a path in full: a learner saved here may be loaded from elsewhere."""
    path = None if given is None else Path(given).expanduser()
    if path is None or str(given).removesuffix("-quickgelu") in ("pocket", *builtin_names()):
        return None if given is None else str(given)
    return str(path.resolve()) if path.exists() else str(given)


def _load(name: str, pretrained: str | None) -> Clip:
    if name == "pocket":
        return _load_pocket()
    if name.removesuffix("-quickgelu") in builtin_names():  # also where a folder has the same name
        return _load_architecture(name, pretrained)
    path = Path(name).expanduser()
    if path.is_dir():
        return load_directory(path)
    if path.is_file():
        return load_checkpoint(path)
    if path.suffix in WEIGHT_SUFFIXES or name.startswith((".", "/", "~")):
        raise WeightsError(f"There is no file or directory {name}; check the path of the model.")
    if name.count("/") == 1:
        return load_directory(_download(name, ("config.json", "model.safetensors")).parent, name=name)
    builtin_config(name)  # says which names there are
    raise AssertionError("unreachable")


def _load_architecture(name: str, pretrained: str | None) -> Clip:
    config = builtin_config(name.removesuffix("-quickgelu"))
    pretrained = pretrained or (RANDOM if config.name == "tiny" else "openai")
    if pretrained == RANDOM:
        generator = torch.Generator().manual_seed(0)
        return initialise(Clip(config, fingerprint=f"random-{config.name}"), generator)
    if Path(pretrained).expanduser().is_file():
        return load_checkpoint(Path(pretrained).expanduser(), architecture=name)
    if (config.name, pretrained) not in HUB:
        known = sorted({weights for _, weights in HUB} | {RANDOM})
        raise WeightsError(
            f"There are no weights {pretrained!r} for {config.name}; use {', '.join(known)} or the path "
            "of a file."
        )
    repository, file = HUB[config.name, pretrained]
    path = _download(repository, (file,))
    activation = "quick_gelu" if pretrained == "openai" else "gelu"
    return _fill(replace(config, activation=activation), path)


def _fill(config: ClipConfig, path: Path) -> Clip:
    return build(config, to_openai_keys(read_file(path)), source=str(path))


def _load_pocket() -> Clip:
    folder = resources.files("taps.clip") / "pocket"
    with resources.as_file(folder) as directory:
        if not (directory / "pocket.safetensors").is_file():
            raise WeightsError("The embedded model is not in this installation; install taps-vlm again.")
        return _fill(read_config(directory / "pocket.json"), directory / "pocket.safetensors")


def load_directory(path: Path, *, name: str | None = None) -> Clip:
    """A directory as Hugging Face or open_clip lays it out; it is called by its own name unless given one."""
    found = [path / file for file in WEIGHT_FILES if (path / file).is_file()]
    if not found:
        raise WeightsError(f"{path} holds none of {', '.join(WEIGHT_FILES)}; put the weights there.")
    template = builtin_config("ViT-B-32")
    if (path / "open_clip_config.json").is_file() and found[0].name.startswith("open_clip"):
        model = read_json(path / "open_clip_config.json").get("model_cfg", {})
        return load_checkpoint(found[0], activation="quick_gelu" if model.get("quick_gelu") else "gelu")
    if not (path / "config.json").is_file():
        return load_checkpoint(found[0])
    return _fill(
        hf_config(read_json(path / "config.json"), name=name or path.resolve().name, template=template),
        found[0],
    )


def load_checkpoint(path: Path, *, architecture: str | None = None, activation: str | None = None) -> Clip:
    """One file of weights. Sizes come from the named architecture, or else from the weights themselves."""
    raw = read_file(path)
    openai = any(key in raw for key in OPENAI_NUMBERS) or any(key.startswith("vision_model.") for key in raw)
    state = to_openai_keys(raw)
    if activation is None:
        # OpenAI's weights want QuickGELU; open_clip's own want GELU unless their name says otherwise.
        activation = "quick_gelu" if openai or (architecture or "").endswith("-quickgelu") else "gelu"
    if architecture is None:
        config = infer_config(
            state, name=path.stem, activation=activation, template=builtin_config("ViT-B-32")
        )
    else:
        config = replace(builtin_config(architecture.removesuffix("-quickgelu")), activation=activation)
    return build(config, state, source=str(path))


def _download(repository: str, files: tuple[str, ...]) -> Path:
    """Fetch files through huggingface_hub (its cache and offline mode hold); the path of the last one."""
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise WeightsError(
            f"Downloading {repository} needs the extra 'hub': pip install 'taps-vlm[hub]', or give the "
            "path of a file."
        ) from None
    path = Path()
    for file in files:
        try:
            path = Path(hf_hub_download(repository, file))
        except Exception as error:
            raise WeightsError(
                f"{file} of {repository} is not in the Hugging Face cache and could not be downloaded "
                f"({type(error).__name__}); put it into a directory and give that directory's path, "
                "or connect and try again."
            ) from error
    return path
