"""A learner on disk: one JSON, one safetensors, no pickle. A crash while saving keeps the older state."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from taps.clip import Clip, load_clip
from taps.errors import StateError
from taps.files import write_tensors, write_text
from taps.prompts import Prompts
from taps.prompts.source import SourceStats

FORMAT = 1
INDEX = "learner.json"


@dataclass(frozen=True)
class Saved:
    """What `load` found: the model, the settings, the state."""

    clip: Clip
    settings: dict[str, Any]
    state: dict[str, Any]


def save(directory: Path, state: dict[str, Any], settings: dict[str, Any], clip: Clip) -> None:
    """Tensors first, under a name never used before; then the index that points to them, in one rename."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tensors_file = _save_tensors(directory, state)
        source_file = _save_source(directory, settings.get("source"))
        index = {
            "format": FORMAT,
            "clip": {
                "source": clip.source,
                "pretrained": clip.pretrained,
                "device": clip.device.type,
                "dtype": str(clip.dtype).removeprefix("torch."),
                "name": clip.config.name,
            },
            "settings": {name: _plain(name, value) for name, value in settings.items()},
            "tensors": tensors_file,
            "source": source_file,
            "values": state["values"],
        }
        write_text(directory / INDEX, json.dumps(index))
        _remove_others(directory, {tensors_file, source_file})
    except OSError as error:
        raise StateError(
            f"The learner cannot be saved in {directory} ({error}); choose another place."
        ) from error


def _save_tensors(directory: Path, state: dict[str, Any]) -> str:
    values = state["values"]
    name = f"state-{values['seen']}-{values['answered']}-{uuid.uuid4().hex[:8]}.safetensors"
    write_tensors(directory / name, state["tensors"] or {"empty": torch.zeros(1)})
    return name


def _save_source(directory: Path, source: object) -> str | None:
    """Statistics given as such are kept beside the state: once, for they are large and never change."""
    if not isinstance(source, SourceStats):
        return None
    name = f"source-{source.fingerprint}.safetensors"
    if not (directory / name).is_file():
        source.save(directory / name, dtype=None)
    return name


def _remove_others(directory: Path, kept: set[str | None]) -> None:
    for pattern in ("state-*.safetensors*", "source-*.safetensors*"):
        for old in directory.glob(pattern):
            if old.name not in kept:
                old.unlink(missing_ok=True)


def _plain(name: str, value: Any) -> Any:
    """A setting as JSON holds it. Prompts are in the state, statistics in their own file; paths in full."""
    if isinstance(value, Prompts | SourceStats):
        return None
    if isinstance(value, Path) or (name == "source" and isinstance(value, str)):
        return str(Path(value).expanduser().resolve())
    return value


def load(directory: Path, clip: Clip | None) -> Saved:
    """Read what `save` wrote; the model is loaded again from where it came from unless given."""
    try:
        index = json.loads((directory / INDEX).read_text())
        tensors = load_file(directory / index["tensors"])
    except Exception as error:
        raise StateError(f"{directory} does not hold a saved learner ({error}).") from error
    if index.get("format") != FORMAT:
        raise StateError(
            f"{directory} was saved in format {index.get('format')}; this version reads format {FORMAT}."
        )
    clip = clip or _load_clip(directory, index["clip"])
    source = None if index["source"] is None else SourceStats.load(directory / index["source"])
    settings = _settings(index["settings"], index["values"]["state"], tensors, clip, source)
    return Saved(clip, settings, {"tensors": tensors, "values": index["values"]})


def _load_clip(directory: Path, place: dict[str, Any]) -> Clip:
    if place["source"] is None:
        raise StateError(f"The model {place['name']!r} of {directory} was not loaded by name; give clip=.")
    return load_clip(
        place["source"],
        pretrained=place["pretrained"],
        device="cpu"
        if place["device"] == "cpu"
        else None,  # what ran on the CPU goes on there, to the same bits
        dtype=getattr(torch, place["dtype"]),
    )


def _settings(
    settings: dict[str, Any],
    values: dict[str, Any],
    tensors: dict[str, Tensor],
    clip: Clip,
    source: SourceStats | None,
) -> dict[str, Any]:
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    prefix = "method.anchor."
    anchor = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if anchor:  # the prompts as they were loaded: the stream goes on even where their directory is gone
        settings["prompts"] = Prompts(
            values["kind"], anchor, values["suffix"], clip.config.name, clip.fingerprint, record={}
        )
    return settings if source is None else {**settings, "source": source}
