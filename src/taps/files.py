"""Files that are there as a whole or not at all, and readable by whoever may read others beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

PART = ".part"  # a file that is being written


def write_text(path: Path, text: str) -> None:
    part = _part(path)
    part.write_text(text, encoding="utf-8")
    _put(part, path)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], meta: dict[str, Any] | None = None) -> None:
    """A safetensors file; `meta` goes into its header, as JSON under "taps"."""
    part = _part(path)
    part.unlink(missing_ok=True)  # left by somebody who was stopped
    part.touch()
    mode = part.stat().st_mode  # what this user's files have here: safetensors makes its own private
    save_file(
        {name: value.detach().cpu().contiguous() for name, value in tensors.items()},
        part,
        metadata=None if meta is None else {"taps": json.dumps(meta)},
    )
    part.chmod(mode)
    _put(part, path)


def _part(path: Path) -> Path:
    return path.with_name(path.name + PART)


def _put(part: Path, path: Path) -> None:
    """Give a finished file its name, once it is really on the disk."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(part, path)
