"""Files of weights: read without running pickled code, checked, and copied into a CLIP."""

from __future__ import annotations

import hashlib
import inspect
import math
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import lr_scheduler
from torch.serialization import safe_globals

from taps.errors import WeightsError
from taps.model.clip.config import ClipConfig, read_object
from taps.model.clip.keys import State
from taps.model.clip.model import Clip, unfilled
from taps.model.clip.tokenizer import CLIP_TOKENIZER, TextTokenizer

SCHEDULERS = [
    name for name, value in vars(lr_scheduler).items() if inspect.isclass(value) and name.endswith("LR")
]
# Trainers save their optimiser and scheduler beside the weights: torch's own, and those of Dassl, on which
# the codes of CoOp, CoCoOp and MaPLe are built. A best score may be a number of numpy's.
INERT = {
    "torch.optim.lr_scheduler": SCHEDULERS,
    "torch.optim.sgd": ["SGD"],
    "torch.optim.adam": ["Adam"],
    "torch.optim.adamw": ["AdamW"],
    "torch.optim.rmsprop": ["RMSprop"],
    "dassl.optim.radam": ["RAdam", "PlainRAdam"],
    "dassl.optim.lr_scheduler": ["ConstantWarmupScheduler", "LinearWarmupScheduler"],
    "numpy": ["dtype"],
    "numpy.core.multiarray": ["scalar"],
    "numpy._core.multiarray": ["scalar"],
    "builtins": ["dict"],
}


class Inert:
    """Replaces a class that a pickle names and nobody reads: takes any arguments, does nothing."""

    def __new__(cls, *given: object) -> Inert:
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        pass


class PlainDict:
    """Replaces `defaultdict`: its entries are read, its factory is not."""

    def __new__(cls, *given: object) -> dict[Any, Any]:  # type: ignore[misc]
        return {}


def read_pickled(path: Path, *, mapped: bool = False) -> Any:
    """The content of a file by `torch.save`; optimisers and schedulers in it come back empty.

    Torch's restricted reader builds tensors and plain containers only and refuses any other name in the
    file, except those that are replaced here. No class or function that the file names is ever called.
    Tensors of a `mapped` file are read when they are used, and the file must not change until then.
    """

    def named(kind: type, module: str, name: str) -> Any:
        return type(name, (kind,), {"__module__": module})  # the reader goes by module and name

    replacements = [named(PlainDict, "collections", "defaultdict")]
    replacements += [named(Inert, module, name) for module, names in INERT.items() for name in names]
    try:
        with safe_globals(replacements):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        # Torch's own message advises to load the file without weights_only.
        code = re.search(r"GLOBAL (\S+)", str(error))
        raise ValueError(f"it holds {code[1]}" if code else "it is no file of tensors") from None


def shard_names(index: Path) -> list[str]:
    """The files that an index of shards (model.safetensors.index.json) lists."""
    return sorted(set(read_object(index).get("weight_map", {}).values()))


def read_file(path: Path) -> State:
    """The tensors of a safetensors file, its shards, a state dict, or one of OpenAI's archives."""
    if path.name.endswith(".index.json"):
        shards = [read_file(path.with_name(shard)) for shard in shard_names(path)]
        return {key: value for shard in shards for key, value in shard.items()}
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
        loaded = read_pickled(path, mapped=zipfile.is_zipfile(path))
    except Exception as error:
        raise WeightsError(
            f"{path} cannot be read as plain weights ({_first_line(error)}); only files of tensors "
            "are loaded, never pickled code."
        ) from error
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in loaded.items()
    ):
        raise WeightsError(f"{path} does not hold a state dict of tensors.")
    return {key.removeprefix("module."): value for key, value in loaded.items()}


def _first_line(error: Exception) -> str:
    """The first line of torch's message, or the error's type where that has no words."""
    line = str(error).partition("\n")[0]
    return line if any(letter.isalpha() for letter in line) else type(error).__name__


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


def build(
    config: ClipConfig,
    state: State,
    *,
    source: str,
    tokenizer: TextTokenizer = CLIP_TOKENIZER,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Clip:
    """A CLIP with these weights in the given precision."""
    check_fit(config, state, source=source)
    clip = unfilled(config, fingerprint=fingerprint(state), tokenizer=tokenizer, device=device, dtype=dtype)
    for key, parameter in clip.named_parameters():
        parameter.copy_(state[key])
    return clip


def check_fit(config: ClipConfig, state: State, *, source: str) -> None:
    """Refuse weights unless keys and shapes are the model's and all values are finite."""
    if wrong := misfits(config, state):
        raise WeightsError(f"{source} does not fit {config.name}: {'; '.join(wrong)}.")
    odd = sorted(f"{key} is {value.dtype}" for key, value in state.items() if not value.is_floating_point())
    if odd:
        raise WeightsError(f"{source} holds numbers that are no weights: {_some(odd)}.")
    # A sum is the quickest test: it is not finite if any value is not.
    damaged = [key for key, value in state.items() if not math.isfinite(value.sum(dtype=torch.float32))]
    if damaged:
        raise WeightsError(
            f"{source} holds values that are not finite in {_some(sorted(damaged))}; fetch it again."
        )


def misfits(config: ClipConfig, state: State) -> list[str]:
    """How the keys and shapes of a state differ from those of a model."""
    with torch.device("meta"):
        wanted = dict(Clip(config).named_parameters())
    shapes = [
        f"{key} is {tuple(state[key].shape)}, not {tuple(wanted[key].shape)}"
        for key in sorted(wanted.keys() & state.keys())
        if state[key].shape != wanted[key].shape
    ]
    differences = {
        "missing keys": sorted(wanted.keys() - state.keys()),
        "unknown keys": sorted(state.keys() - wanted.keys()),
        "wrong shapes": shapes,
    }
    return [f"{what}: {_some(keys)}" for what, keys in differences.items() if keys]


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:8]) + (f" and {len(keys) - 8} more" if len(keys) > 8 else "")


def fingerprint(state: State) -> str:
    """A name for weights that is the same in single and in half precision.

    Hashes about 1,024 values of every tensor, rounded to half precision.
    """
    digest = hashlib.sha256()
    for key in sorted(state):
        flat = state[key].detach().flatten()
        picked = flat[:: max(1, len(flat) // 1024)].half()
        digest.update(f"{key}{tuple(state[key].shape)}".encode())
        digest.update(picked.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
