"""Expert files of weights, and filling a CLIP with them: every key must find its place and be found."""

from __future__ import annotations

import hashlib
import math
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from taps.clip.config import ClipConfig, read_object
from taps.clip.keys import State
from taps.clip.model import Clip, unfilled
from taps.clip.pickled import read_pickled
from taps.clip.tokenizer import CLIP_TOKENIZER, TextTokenizer
from taps.errors import WeightsError


def read_file(path: Path) -> State:
    """The tensors of a safetensors file, of its shards, a state dict, or one of OpenAI's archives."""
    if path.name.endswith(".index.json"):
        shards = sorted(set(read_object(path).get("weight_map", {}).values()))
        return {key: value for shard in shards for key, value in read_file(path.with_name(shard)).items()}
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
    said = (str(error).splitlines() or [""])[0]
    return said if any(letter.isalpha() for letter in said) else type(error).__name__


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
    """A CLIP filled with weights, each of them put where it belongs in the precision that is wanted."""
    check_fit(config, state, source=source)
    clip = unfilled(config, fingerprint=fingerprint(state), tokenizer=tokenizer, device=device, dtype=dtype)
    for key, parameter in clip.named_parameters():
        parameter.copy_(state[key])
    return clip


def check_fit(config: ClipConfig, state: State, *, source: str) -> None:
    """Refuse weights unless every key has a place, every place a key, every shape is equal, all is finite."""
    if wrong := misfits(config, state):
        raise WeightsError(f"{source} does not fit {config.name}: {'; '.join(wrong)}.")
    odd = sorted(f"{key} is {value.dtype}" for key, value in state.items() if not value.is_floating_point())
    if odd:
        raise WeightsError(f"{source} holds numbers that are no weights: {_some(odd)}.")
    # One sum is the quickest way to meet a NaN or an infinity among a hundred million numbers.
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
    found = {
        "missing keys": sorted(wanted.keys() - state.keys()),
        "unknown keys": sorted(state.keys() - wanted.keys()),
        "wrong shapes": shapes,
    }
    return [f"{what}: {_some(keys)}" for what, keys in found.items() if keys]


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:8]) + (f" and {len(keys) - 8} more" if len(keys) > 8 else "")


def fingerprint(state: State) -> str:
    """A name for weights, the same whether a file keeps them in single or in half precision.

    Hashes some values of every tensor, rounded to half precision: rounding what is rounded changes nothing.
    """
    digest = hashlib.sha256()
    for key in sorted(state):
        flat = state[key].detach().flatten()
        picked = flat[:: max(1, len(flat) // 1024)].half()
        digest.update(f"{key}{tuple(state[key].shape)}".encode())
        digest.update(picked.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
