"""A learner on disk: one JSON index, one safetensors file, no pickle. The state before it is kept, too."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from taps.disk import claim, remove
from taps.errors import DamagedError, StateError
from taps.files import check_tensors, holds, read_json, read_tensors, write_json, write_tensors, writing
from taps.methods.base import without_prefix
from taps.model.clip import Clip, load_clip
from taps.model.prompts import Prompts
from taps.model.prompts.base import prompts_for
from taps.model.prompts.source import SourceStats

log = logging.getLogger("taps")
STREAM = ("method", "model", "seed")  # values that all states of one stream share
INDEX, PREVIOUS = "learner.json", "learner.previous.json"


@dataclass(frozen=True)
class Saved:
    """A saved learner, read and found undamaged."""

    directory: Path
    index: dict[str, Any]
    tensors: dict[str, Tensor]
    source: SourceStats | None

    @property
    def state(self) -> dict[str, Any]:
        """For `Learner.load_state_dict`."""
        return {"tensors": self.tensors, "values": self.index["values"]}

    @property
    def extra(self) -> dict[str, Any]:
        """The plain values that were given to `save`."""
        extra: dict[str, Any] = self.index["extra"]
        return extra

    def load_clip(self) -> Clip:
        """Load the model from where it came from."""
        place = self.index["clip"]
        if place["source"] is None:
            name = place["name"]
            raise StateError(f"The model {name!r} of {self.directory} was not loaded by name; give clip=.")
        return load_clip(
            place["source"],
            pretrained=place["pretrained"],
            # What ran on the CPU goes on there, to the same bits.
            device="cpu" if place["device"] == "cpu" else None,
            dtype=getattr(torch, place["dtype"]),
        )

    def settings(self, clip: Clip) -> dict[str, Any]:
        """Settings of the method."""
        settings = with_prompts(self.index["settings"], self.state, clip)
        return settings if self.source is None else {**settings, "source": self.source}


def save(
    directory: Path,
    state: dict[str, Any],
    settings: dict[str, Any],
    clip: Clip,
    extra: dict[str, Any] | None = None,
) -> None:
    """Write tensors under a new name, then rename into place the index that points to them.

    The index so far is kept, with its tensors: `read` takes it where the new files are damaged.

    Args:
        directory: Created where missing.
        state: Of the learner.
        settings: Of the method.
        clip: The model, which is named and not copied.
        extra: Plain values that belong to this state, such as how far a run had come.
    """
    with writing(directory):
        claim(directory, _is_learner)
        values = state["values"]
        older = _whole_index(directory, values)
        tensors_file = f"state-{values['seen']}-{values['answered']}-{uuid.uuid4().hex[:8]}.safetensors"
        write_tensors(directory / tensors_file, state["tensors"] or {"empty": torch.zeros(1)})
        index = {
            "clip": {
                "source": clip.source,
                "pretrained": clip.pretrained,
                "device": clip.device.type,
                "dtype": str(clip.dtype).removeprefix("torch."),
                "name": clip.config.name,
            },
            "settings": {name: _plain(name, value) for name, value in settings.items()},
            "tensors": tensors_file,
            "source": _save_source(directory, settings.get("source")),
            "values": values,
            "extra": extra or {},
        }
        if older is not None:
            write_json(directory / PREVIOUS, older, indent=None)
        write_json(directory / INDEX, index, indent=None)
        kept = {each[name] for each in (index, older or index) for name in ("tensors", "source")}
        for pattern in ("state-*.safetensors*", "source-*.safetensors*"):
            for old in directory.glob(pattern):
                if old.name not in kept:
                    remove(old)


def _is_learner(directory: Path) -> bool:
    """Whether a directory holds a learner, of an older version too."""
    return any(holds(directory / name, "tensors", "values") for name in (INDEX, PREVIOUS))


def _whole_index(directory: Path, values: dict[str, Any]) -> dict[str, Any] | None:
    """Index of the newest undamaged state of the same stream in a directory; None where there is none."""
    for name in (INDEX, PREVIOUS):
        try:
            index = read_json(directory / name)
            check_tensors(directory / index["tensors"])
        except (OSError, StateError, KeyError, TypeError):
            continue
        if all(index["values"][key] == values[key] for key in STREAM):
            return index
    return None


def _save_source(directory: Path, source: object) -> str | None:
    """Save statistics given as an object beside the state, once: they are large and never change."""
    if not isinstance(source, SourceStats):
        return None
    name = f"source-{source.fingerprint}.safetensors"
    if not (directory / name).is_file():
        source.save(directory / name, dtype=None)
    return name


def _plain(name: str, value: Any) -> Any:
    """A setting as JSON holds it. Prompts are in the state, statistics in their own file; paths in full."""
    if isinstance(value, Prompts | SourceStats):
        return None
    if name == "texts" and value is not None:  # pairs: class names are no fields
        return [[each, list(sentences)] for each, sentences in value.items()]
    if isinstance(value, Path) or (name == "source" and isinstance(value, str)):
        return str(Path(value).expanduser().resolve())
    return value


def exists(directory: Path) -> bool:
    """Whether a directory holds a saved state; a half-written one does not count."""
    return (directory / INDEX).is_file() or (directory / PREVIOUS).is_file()


def read(directory: Path, check: Callable[[dict[str, Any]], None] = lambda extra: None) -> Saved:
    """Read what `save` wrote: the newest state, or where its files are damaged the one before it.

    `check` is given `extra` and raises `DamagedError` where files that belong to it are damaged; the state is
    then not taken either.
    """
    try:
        return _read(directory, INDEX, check)
    except (DamagedError, OSError, KeyError, TypeError) as error:
        try:
            found = _read(directory, PREVIOUS, check)
        except (StateError, OSError, KeyError, TypeError):
            raise StateError(f"{directory} does not hold a saved learner ({error}).") from error
        log.warning(
            "%s; the state saved before it is used, of image %d.", error, found.index["values"]["seen"]
        )
        return found


def _read(directory: Path, name: str, check: Callable[[dict[str, Any]], None]) -> Saved:
    index = read_json(directory / name)
    check(index["extra"])
    tensors, _ = read_tensors(directory / index["tensors"])
    source = None if index["source"] is None else SourceStats.load(directory / index["source"])
    return Saved(directory, index, tensors, source)


def with_prompts(settings: dict[str, Any], state: dict[str, Any], clip: Clip) -> dict[str, Any]:
    """Settings with the prompts that a state began with: their directory is no longer needed."""
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    if isinstance(texts := settings.get("texts"), tuple):
        settings["texts"] = dict(texts)
    values, anchor = state["values"]["state"], without_prefix("method.anchor.", state["tensors"])
    if anchor:
        settings["prompts"] = prompts_for(clip, values["kind"], anchor, values["suffix"])
    return settings
