"""A learner on disk: one JSON, one safetensors, no pickle. A crash while saving keeps the older state."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from taps.clip import Clip, load_clip
from taps.errors import StateError
from taps.prompts import Prompts
from taps.source import SourceStats

FORMAT = 1
INDEX, SOURCE = "learner.json", "source.safetensors"


@dataclass(frozen=True)
class Saved:
    """What `load` found: the model, the settings, the state."""

    clip: Clip
    settings: dict[str, Any]
    state: dict[str, Any]


def save(directory: Path, state: dict[str, Any], settings: dict[str, Any], clip: Clip) -> None:
    """Tensors first, under a new name; then the index that points to them, in one atomic rename."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors_file = f"state-{state['values']['seen']}-{state['values']['answered']}.safetensors"
    tensors = {name: value.cpu().contiguous() for name, value in state["tensors"].items()}
    save_file(tensors or {"empty": torch.zeros(1)}, directory / (tensors_file + ".part"))
    os.replace(directory / (tensors_file + ".part"), directory / tensors_file)
    plain = dict(settings)
    if isinstance(plain.get("source"), SourceStats):
        plain["source"].save(directory / SOURCE)
        plain["source"] = None
    if isinstance(plain.get("prompts"), Prompts):
        plain["prompts"] = None  # their values are in the state
    index = {
        "format": FORMAT,
        "clip": {
            "source": clip.source,
            "pretrained": clip.pretrained,
            "dtype": str(clip.dtype).removeprefix("torch."),
            "name": clip.config.name,
        },
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in plain.items()},
        "tensors": tensors_file,
        "values": state["values"],
    }
    (directory / (INDEX + ".part")).write_text(json.dumps(index))
    os.replace(directory / (INDEX + ".part"), directory / INDEX)
    for old in directory.glob("state-*.safetensors*"):
        if old.name != tensors_file:
            old.unlink()


def load(directory: Path, clip: Clip | None) -> Saved:
    try:
        index = json.loads((directory / INDEX).read_text())
        tensors = load_file(directory / index["tensors"])
    except Exception as error:
        raise StateError(f"{directory} does not hold a saved learner ({error}).") from error
    if index.get("format") != FORMAT:
        raise StateError(
            f"{directory} was saved in format {index.get('format')}; this version reads format {FORMAT}."
        )
    if clip is None:
        place = index["clip"]
        if place["source"] is None:
            raise StateError(
                f"The model {place['name']!r} of {directory} was not loaded by name; give clip=."
            )
        clip = load_clip(
            place["source"], pretrained=place["pretrained"], dtype=getattr(torch, place["dtype"])
        )
    settings = _settings(directory, index["settings"], index["values"]["state"], tensors, clip)
    return Saved(clip, settings, {"tensors": tensors, "values": index["values"]})


def _settings(
    directory: Path, settings: dict[str, Any], values: dict[str, Any], tensors: dict[str, Tensor], clip: Clip
) -> dict[str, Any]:
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    prefix = "method.anchor."
    anchor = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if anchor:  # the prompts as they were loaded: the stream goes on even where their directory is gone
        settings["prompts"] = Prompts(
            values["kind"], anchor, values["suffix"], clip.config.name, clip.fingerprint, record={}
        )
    if (directory / SOURCE).is_file():
        settings["source"] = SourceStats.load(directory / SOURCE)
    return settings
